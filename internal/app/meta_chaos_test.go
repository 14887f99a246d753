package app

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// chaos does to the processes and brokers of a bed whatever comes up, one thing at a time.
type chaos struct {
	*metaBed

	random *rand.Rand
	// disks are those of processes that have ended, by instance.
	disks map[string]*vfs.MemFS
	done  map[string]int
	mends []func()
}

// step does one thing. At least one process is alive afterwards.
func (c *chaos) step() {
	c.reap()
	names := []string{"start", "kill", "kill silently", "drain", "sever", "cut", "cut", "fault", "fault", "fault", "coordinators", "leaders", "mend"}
	name := names[c.random.IntN(len(names))]
	if len(c.live) > 0 {
		p := c.live[c.random.IntN(len(c.live))]
		switch name {
		case "kill", "kill silently":
			c.disks[p.instance] = p.kill(c.random, name == "kill silently")
		case "drain":
			if err := p.drain(); err != nil {
				c.watch.mark(p.name, err.Error()) // A broker that is broken just then may cost the last commit.
			}
			c.disks[p.instance] = p.disk
		case "sever":
			c.watch.mark(p.name, name)
			p.wires.sever(true)
			<-time.After(time.Duration(c.random.Int64N(int64(6 * time.Second))))
			p.wires.sever(false)
		case "cut":
			key := []kmsg.Key{
				kmsg.EndTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.OffsetFetch,
				kmsg.Fetch, kmsg.JoinGroup, kmsg.Heartbeat,
			}[c.random.IntN(10)]
			after := c.random.IntN(2) == 0
			name = fmt.Sprintf("cut %s after: %t", key.Name(), after)
			p.wires.breakAt(key, 1+c.random.IntN(3), after)
		}
	}
	switch name {
	case "fault":
		name = c.fault()
	case "coordinators":
		c.cluster.RehashCoordinators()
	case "leaders":
		c.cluster.ShufflePartitionLeaders()
	case "mend":
		c.mend()
	}
	c.done[name]++
	c.watch.note(name)
	if len(c.live) == 0 || name == "start" && len(c.live) < 3 {
		c.raise()
	}
}

// raise starts a process: a new one or one that was there before, on its disk or, once in a while, on an empty one.
func (c *chaos) raise() {
	instance := "pod-" + strconv.Itoa(c.random.IntN(4))
	for _, p := range c.live {
		if p.instance == instance {
			instance = "pod-" + strconv.Itoa(4+c.started)
		}
	}
	disk := c.disks[instance]
	if delete(c.disks, instance); disk == nil || c.random.IntN(5) == 0 {
		disk = vfs.NewCrashableMem()
	}
	c.start(instance, disk)
}

// reap lets go of processes that have ended by themselves, as those do that find their transactional ids fenced again and again.
func (c *chaos) reap() {
	for i := 0; i < len(c.live); {
		p := c.live[i]
		if !p.hasEnded() {
			i++
			continue
		}
		c.watch.mark(p.name, "ended")
		c.done["ended: "+p.err.Error()]++
		c.disks[p.instance] = p.disk
		p.close()
	}
}

// fault makes brokers refuse requests of a kind for a while.
func (c *chaos) fault() string {
	type kind struct {
		key  kmsg.Key
		errs []*kerr.Error
	}
	kinds := []kind{
		{kmsg.TxnOffsetCommit, []*kerr.Error{
			kerr.ConcurrentTransactions, kerr.RequestTimedOut, kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.RebalanceInProgress, kerr.NotCoordinator,
			kerr.CoordinatorLoadInProgress, kerr.UnknownServerError, kerr.UnknownMemberID, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.TransactionAbortable,
		}},
		{kmsg.Produce, []*kerr.Error{
			kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.InvalidTxnState, kerr.ConcurrentTransactions,
			kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerIDMapping, kerr.TransactionAbortable, kerr.InvalidProducerEpoch,
			kerr.KafkaStorageError, kerr.RequestTimedOut, kerr.UnknownServerError,
		}},
		{kmsg.EndTxn, []*kerr.Error{
			kerr.UnknownServerError, kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.TransactionAbortable,
			kerr.ProducerFenced, kerr.InvalidTxnState, kerr.RequestTimedOut,
		}},
		{kmsg.InitProducerID, []*kerr.Error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.UnknownServerError}},
		{kmsg.AddPartitionsToTxn, []*kerr.Error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.TransactionAbortable, kerr.UnknownServerError}},
		{kmsg.OffsetFetch, []*kerr.Error{kerr.UnstableOffsetCommit, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.UnknownServerError}},
		{kmsg.FindCoordinator, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.UnknownServerError}},
		{kmsg.JoinGroup, []*kerr.Error{kerr.UnknownMemberID, kerr.NotCoordinator, kerr.CoordinatorNotAvailable}},
		{kmsg.SyncGroup, []*kerr.Error{kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.IllegalGeneration}},
		{kmsg.Heartbeat, []*kerr.Error{kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.NotCoordinator}},
		{kmsg.ConsumerGroupHeartbeat, []*kerr.Error{kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress}},
		{kmsg.Fetch, []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownLeaderEpoch, kerr.KafkaStorageError, kerr.UnknownServerError}},
		{kmsg.ListOffsets, []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.RequestTimedOut, kerr.UnknownServerError}},
		{kmsg.OffsetForLeaderEpoch, []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownLeaderEpoch, kerr.UnknownServerError}},
		{kmsg.Metadata, []*kerr.Error{kerr.LeaderNotAvailable, kerr.UnknownServerError}},
	}
	k := kinds[c.random.IntN(len(kinds))]
	err := k.errs[c.random.IntN(len(k.errs))]
	f := kfake.Fault{Keys: []kmsg.Key{k.key}, Err: err, Count: 1 + c.random.IntN(4), TopLevel: k.key == kmsg.EndTxn}
	if k.key == kmsg.Produce { // Not what the test itself sends.
		f.Topic = []string{c.changelog.Name, c.toolEvents.Name, c.turnEvents.Name}[c.random.IntN(3)]
	}
	c.mends = append(c.mends, c.cluster.Fault(f).Remove)
	return k.key.Name() + " " + err.Message
}

// mend ends every fault that is still there.
func (c *chaos) mend() {
	for _, f := range c.mends {
		f()
	}
	c.mends = nil
	for _, p := range c.live {
		p.wires.breakAt(0, 0, false)
	}
}

func (w *metaWatch) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, time.Now().Format("05.000")+" == "+what)
}
