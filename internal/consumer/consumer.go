// Package consumer takes partitions of the turns topic, restores their state, hands their records to the turns' lanes and
// makes what the turns add durable. It hides Kafka from them: the group and its rebalances, offsets, the changelog, dead
// letters and the commit cycle.
//
// What it promises: the records of one session are handled one at a time in log order; a record's offset is committed in the
// transaction that commits the effect which completes it, and never before; what a partition's turns add is committed whole or,
// when the partition is lost, not at all; and no partition that is halted or slow holds up another.
//
//	poll -> backlog -> decode -> lane -> Handler -> statestore effects -> commit cycle -> settle
package consumer
