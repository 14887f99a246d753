package txn

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

func TestRing_AnnouncesOnlyWhereItHelps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		brokers, version  int
		partitions        []int32
		err               *kerr.Error
		count             int
		announced, cycles int
	}{
		{name: "several leaders", brokers: 3, version: 2, partitions: []int32{0, 1, 2, 3}, cycles: 6, announced: 6},
		{name: "one broker, once its leaders are known", brokers: 1, version: 2, partitions: []int32{0, 1}, cycles: 6, announced: 3},
		{name: "transaction.version 1", brokers: 3, version: 1, partitions: []int32{0, 1, 2, 3}, cycles: 6},
		{
			name: "refused once, never again", brokers: 3, version: 2, partitions: []int32{0, 1, 2, 3}, cycles: 6, announced: 1,
			err: kerr.UnsupportedVersion, count: -1,
		},
		{
			name: "held back, tried again", brokers: 3, version: 2, partitions: []int32{0, 1, 2, 3}, cycles: 6, announced: 6 + 4,
			err: kerr.ConcurrentTransactions, count: 4,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, tc.brokers, tc.version)
				w := f.worker()
				announced := 0
				f.cluster.ControlKey(kmsg.AddPartitionsToTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
					f.cluster.KeepControl()
					if tc.version >= 2 { // below, the client sends it by itself
						announced++
					}
					return nil, nil, false //nolint:nilnil // not handled, to kfake
				})
				if tc.count != 0 {
					f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.AddPartitionsToTxn), Err: tc.err, Count: tc.count})
				}
				var want []string
				for i := range tc.cycles {
					requireOutcome(t, w.commit(strconv.Itoa(i), tc.partitions...), Committed, nil)
					want = append(want, values(strconv.Itoa(i), tc.partitions...)...)
				}
				equal(t, announced, tc.announced)
				f.requireOnce(want...)
			})
		})
	}
}

// TestRing_SendsOneRequestPerBrokerAndStep counts what a cycle costs.
func TestRing_SendsOneRequestPerBrokerAndStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		for range 3 {
			requireOutcome(t, w.commit("before", 0, 1, 2, 3), Committed, nil)
		}
		f.consumer.Close()
		count := map[kmsg.Key]int{}
		f.cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			count[kmsg.Key(r.Key())]++
			return nil, nil, false //nolint:nilnil // not handled, to kfake
		})
		c := w.cycle("counted", 0, 1, 2, 3)
		c.Group = Membership{MemberID: "gone", Generation: 1}
		res, err := w.ring.Commit(t.Context(), c)
		must(t, err)
		requireOutcome(t, res, Aborted, ErrMemberUnknown)
		equal(t, count, map[kmsg.Key]int{kmsg.Produce: 1, kmsg.TxnOffsetCommit: 1, kmsg.EndTxn: 1})
	})
}

func TestOpen_FailsWithEveryFaultOfItsConfig(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{Slots: -1})
	if err == nil {
		t.Fatal("opened a ring of nothing")
	}
	for _, fault := range []string{"App", "Instance", "Group", "Slots", "NewClient", "Logger"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("got %q, want it to name %s", err, fault)
		}
	}
}

func TestOpen_NamesWhatIsForbidden(t *testing.T) {
	t.Parallel()
	for err, want := range map[*kerr.Error]string{
		kerr.TransactionalIDAuthorizationFailed: "transactional id bed/pod-0/1",
		kerr.InvalidTransactionTimeout:          "transaction timeout of transactional id bed/pod-0/1",
		kerr.ClusterAuthorizationFailed:         "cluster",
	} {
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1, 2)
				defer f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.InitProducerID), Err: err, TxnID: "bed/pod-0/1", Count: -1}).Remove()
				began := time.Now()
				_, err := Open(t.Context(), f.config())
				refused, ok := errors.AsType[*ConfigError](err)
				if !ok || refused.Resource != want {
					t.Fatalf("got %v, want %s refused", err, want)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it was said after %s", took)
				}
			})
		})
	}
}

func TestOpen_AsksAgainForWhatMayPass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		times int
		opens bool
	}{"passes": {3, true}, "stays": {-1, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, began := newFake(t, 1, 2), time.Now()
				defer f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.InitProducerID), Err: kerr.UnknownServerError, Count: c.times}).Remove()
				r, err := Open(t.Context(), f.config())
				if r != nil {
					r.Close()
				}
				if c.opens != (err == nil) || !c.opens && !errors.Is(err, kerr.UnknownServerError) {
					t.Fatalf("got %v, want it open: %v", err, c.opens)
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestOpen_WaitsForBrokersThatAreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, began := newFake(t, 1, 2), time.Now()
		const outage = 10 * time.Minute
		f.wires.BreakAt(func(kmsg.Key) netcut.Cut { return netcut.CutRequest })
		back := time.AfterFunc(outage, func() { f.wires.BreakAt(nil) })
		defer back.Stop()
		r, err := Open(t.Context(), f.config())
		if err != nil {
			t.Fatalf("it gave up after %s: %v", time.Since(began), err)
		}
		defer r.Close()
		if took := time.Since(began); took < outage || took > outage+time.Minute {
			t.Errorf("it took %s, want it soon after the brokers are back, %s", took, outage)
		}
	})
}

func TestOpen_GivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		defer f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.InitProducerID), Err: kerr.ConcurrentTransactions, Count: -1}).Remove()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Open(ctx, f.config()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
