//go:build kafka

package kafkatest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMove_GivesEveryPartitionAnotherLeaderAndKeepsItsReplicas(t *testing.T) {
	t.Parallel()
	c := Shared(t, 3)
	topic := c.Topic(t, 4, nil)
	adm := kadm.NewClient(c.Client(t))
	look := func() kadm.PartitionDetails {
		t.Helper()
		topics, err := adm.ListTopics(t.Context(), topic)
		must(t, err)
		return topics[topic].Partitions
	}
	for range 3 { // all the way round
		before := look()
		must(t, c.MoveLeaders(t.Context(), topic))
		for p, was := range before {
			if now := look()[p]; now.Leader == was.Leader || len(now.Replicas) != len(was.Replicas) || len(now.ISR) != len(was.ISR) {
				t.Errorf("partition %d: leader %d, replicas %v, in sync %v; was %d, %v, %v", p,
					now.Leader, now.Replicas, now.ISR, was.Leader, was.Replicas, was.ISR)
			}
		}
	}
	before := look()
	must(t, c.MoveLeader(t.Context(), topic, 2))
	for p, was := range before {
		if moved := look()[p].Leader != was.Leader; moved != (p == 2) {
			t.Errorf("partition %d moved: %v", p, moved)
		}
	}
	if err := c.MoveLeaders(t.Context(), "no-such-topic"); err == nil {
		t.Error("leaders of a topic that is not there were moved")
	}
}

func TestMove_GivesGroupsAndTransactionsAnotherCoordinator(t *testing.T) {
	t.Parallel()
	c := Shared(t, 3)
	adm := kadm.NewClient(c.Client(t))
	for _, tc := range []struct {
		name string
		find func(string) int32
		move func(string) error
	}{
		{
			"group",
			func(name string) int32 { return adm.FindGroupCoordinators(t.Context(), name)[name].NodeID },
			func(name string) error { return c.MoveGroupCoordinator(t.Context(), name) },
		},
		{
			"transactional id",
			func(name string) int32 { return adm.FindTxnCoordinators(t.Context(), name)[name].NodeID },
			func(name string) error { return c.MoveTransactionCoordinator(t.Context(), name) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // names of several partitions
				name := Name(t)
				was := tc.find(name)
				must(t, tc.move(name))
				if now := tc.find(name); now == was {
					t.Errorf("the coordinator of %s is still %d", name, now)
				}
			}
		})
	}
}

func TestDestroy_RecreatesATopicWithAnotherIDAndTheSameSettings(t *testing.T) {
	t.Parallel()
	c := Shared(t, 3)
	topic := c.Topic(t, 3, map[string]string{cleanupPolicy: "compact"})
	must(t, c.SetTopicConfig(t.Context(), topic, "min.cleanable.dirty.ratio", "0.1"))
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(3) {
		must(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Key: []byte("k")}).FirstErr())
	}
	adm := kadm.NewClient(cl)
	before, err := adm.ListTopics(t.Context(), topic)
	must(t, err)
	must(t, c.RecreateTopic(t.Context(), topic))
	after, err := adm.ListTopics(t.Context(), topic)
	must(t, err)
	if len(after[topic].Partitions) != 3 || after[topic].ID == before[topic].ID {
		t.Errorf("the topic has %d partitions and the id %v; it had 3 and %v", len(after[topic].Partitions), after[topic].ID, before[topic].ID)
	}
	settings, err := ownConfigs(t.Context(), adm, topic)
	must(t, err)
	for key, want := range map[string]string{cleanupPolicy: "compact", "min.cleanable.dirty.ratio": "0.1"} {
		if got := settings[key]; got == nil || *got != want {
			t.Errorf("%s is %v, want %s", key, got, want)
		}
	}
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	must(t, err)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("partition %d ends at %d, want it empty", o.Partition, o.Offset)
		}
	})
	must(t, c.DeleteTopic(t.Context(), topic))
	if gone, err := adm.ListTopics(t.Context(), topic); err != nil || gone.Error() == nil {
		t.Errorf("the deleted topic is there: %v, %v", gone, err)
	}
}

func TestDestroy_TruncatesAlsoWhatIsOnlyCompacted(t *testing.T) {
	t.Parallel()
	c := Shared(t, 3)
	topic := c.Topic(t, 3, map[string]string{cleanupPolicy: "compact"})
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for range 3 {
		for p := range int32(3) {
			must(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Key: []byte("k")}).FirstErr())
		}
	}
	must(t, c.Truncate(t.Context(), topic, map[int32]int64{1: 2, 2: -1}))
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(t.Context(), topic)
	must(t, err)
	for p, want := range []int64{0, 2, 3} {
		if o, ok := starts.Lookup(topic, int32(p)); !ok || o.Offset != want {
			t.Errorf("partition %d begins at %d, want %d", p, o.Offset, want)
		}
	}
	settings, err := ownConfigs(t.Context(), adm, topic)
	must(t, err)
	if got := *settings[cleanupPolicy]; got != "compact" {
		t.Errorf("%s is %s, want compact again", cleanupPolicy, got)
	}
}
