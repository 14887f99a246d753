package consumer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWorker_NeverRetriesInATightLoop lets brokers answer every request of one kind with one error for a while, to a worker that
// runs and to one that starts. However it fares, it must not come again and again without waiting.
func TestWorker_NeverRetriesInATightLoop(t *testing.T) {
	t.Parallel()
	long, all := refusalTime(t)
	coordinator := []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.GroupAuthorizationFailed, kerr.UnknownServerError}
	leader := []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.RequestTimedOut, kerr.TopicAuthorizationFailed, kerr.UnknownServerError}
	for _, tc := range []struct {
		key  kmsg.Key
		errs []*kerr.Error
	}{
		{kmsg.TxnOffsetCommit, append([]*kerr.Error{
			kerr.ConcurrentTransactions, kerr.RequestTimedOut, kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.UnknownMemberID, kerr.RebalanceInProgress,
			kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.UnknownTopicID, kerr.FencedInstanceID,
		}, coordinator...)},
		{kmsg.Produce, append([]*kerr.Error{
			kerr.NotEnoughReplicas, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerIDMapping,
			kerr.ConcurrentTransactions, kerr.TransactionAbortable, kerr.MessageTooLarge, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError,
		}, leader...)},
		{kmsg.EndTxn, []*kerr.Error{
			kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.UnknownServerError, kerr.ProducerFenced, kerr.InvalidTxnState, kerr.TransactionAbortable,
			kerr.TransactionalIDAuthorizationFailed,
		}},
		{kmsg.InitProducerID, []*kerr.Error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.TransactionalIDAuthorizationFailed, kerr.UnknownServerError}},
		{kmsg.OffsetFetch, append([]*kerr.Error{kerr.UnstableOffsetCommit}, coordinator...)},
		{kmsg.FindCoordinator, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.GroupAuthorizationFailed, kerr.UnknownServerError}},
		// Not UNKNOWN_MEMBER_ID, after which the client joins at once as a new member: no broker says so of one.
		{kmsg.JoinGroup, append([]*kerr.Error{kerr.GroupMaxSizeReached}, coordinator...)},
		// Not REBALANCE_IN_PROGRESS: after that the client joins again at once, as the protocol wants it, and a broker holds the join.
		{kmsg.SyncGroup, append([]*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration}, coordinator...)},
		{kmsg.Heartbeat, append([]*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration}, coordinator...)},
		// Not what makes a member join at once as a new one, as above.
		{kmsg.ConsumerGroupHeartbeat, append([]*kerr.Error{kerr.UnreleasedInstanceID, kerr.GroupMaxSizeReached, kerr.UnsupportedAssignor}, coordinator...)},
		{kmsg.Fetch, append([]*kerr.Error{kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.OffsetOutOfRange}, leader...)},
		{kmsg.ListOffsets, leader},
		{kmsg.Metadata, []*kerr.Error{kerr.LeaderNotAvailable, kerr.TopicAuthorizationFailed, kerr.UnknownServerError}},
	} {
		if !all {
			tc.errs = tc.errs[:1]
		}
		for _, err := range tc.errs {
			for _, starting := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s starting %t", tc.key.Name(), err.Message, starting), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(f *fake) { f.refuse(tc.key, err, starting, long) })
				})
			}
		}
	}
}

// What is let pass of one kind of request: in a second, as when four partitions lose their leader at once and all are asked again,
// and in the long run.
const (
	mostInASecond   = 250
	mostOnTheWhole  = 25
	refusalSetting  = "LATHE_TEST_REFUSAL"
	refusalStandard = time.Minute
)

// refusalTime is how long the brokers refuse, and whether with every error. make test-kafka takes a minute of each. Set it to 10m now
// and then: that takes longer than all other tests together.
func refusalTime(t *testing.T) (long time.Duration, all bool) {
	t.Helper()
	s := os.Getenv(refusalSetting)
	if s == "" {
		return refusalStandard, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", refusalSetting, err)
	}
	return d, true
}

func (f *fake) refuse(key kmsg.Key, err *kerr.Error, starting bool, long time.Duration) {
	f.load(20, 8)
	f.opts = append(f.opts, kgo.MetadataMinAge(5*time.Second)) // As a worker has it.
	speaks := func(s *setup) {
		if key == kmsg.ConsumerGroupHeartbeat {
			s.cfg.Protocol = ProtocolConsumer
		}
	}
	var p *process
	if !starting {
		p = f.start(calm, speaks).running(bedPartitions)
		f.handled()
	}
	var mu sync.Mutex // The broker counts on its own goroutine.
	seconds, all := map[kmsg.Key]map[int64]int{}, map[kmsg.Key]int{}
	f.cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		k := kmsg.Key(r.Key())
		if seconds[k] == nil {
			seconds[k] = map[int64]int{}
		}
		now := time.Now().Unix()
		seconds[k][now]++
		all[k]++
		if seconds[k][now] > 20*mostInASecond {
			panic(fmt.Sprintf("%s %s: requests %s come in a tight loop, in which no time passes", key.Name(), err.Message, k.Name()))
		}
		return nil, nil, false //nolint:nilnil // Not handled, to kfake.
	})
	if !starting {
		for i := range 4 {
			f.produce(turn(sessionOn(int32(i), 1), fmt.Sprintf("late-%d", i)))
		}
	}
	// The clients of the test itself are not to be refused.
	f.producer.Close()
	f.admin.Close()
	fault := kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1, TopLevel: key == kmsg.EndTxn || key == kmsg.JoinGroup}
	met := f.cluster.Fault(fault)
	if starting {
		p = f.start(calm, speaks)
	}
	<-time.After(long)
	met.Remove()
	p.kill()
	mu.Lock()
	defer mu.Unlock()
	var faults []string
	for k, by := range seconds {
		peak := 0
		for _, n := range by {
			peak = max(peak, n)
		}
		if peak > mostInASecond || all[k] > mostOnTheWhole*int(long.Seconds())+mostInASecond {
			faults = append(faults, fmt.Sprintf("%s: %d in a second, %d in %s", k.Name(), peak, all[k], long))
		}
	}
	slices.Sort(faults)
	if len(faults) > 0 {
		f.t.Errorf("too many requests: %s", strings.Join(faults, "; "))
	}
}
