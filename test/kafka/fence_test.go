//go:build kafka

package kafka_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// protocol is one of the two group protocols, with what it answers to stale members.
type protocol struct {
	name string
	opts []kgo.Opt
	// stale is the answer to a generation, or member epoch, that is not the present one.
	stale error
	// keeps says that a member whose generation has passed may still commit, in a request of their own, the partitions
	// it kept (KIP-1251).
	keeps bool
}

func protocols() []protocol {
	return []protocol{
		{name: "classic", opts: []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}, stale: kerr.IllegalGeneration},
		{
			name: "consumer", opts: []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
			stale: kerr.StaleMemberEpoch, keeps: true,
		},
	}
}

// member is a consumer in the fixture's group that notes what it owns.
type member struct {
	*kgo.Client

	f  *fixture
	mu struct {
		sync.Mutex
		owned []int32
	}
}

func (f *fixture) join(proto protocol, opts ...kgo.Opt) *member {
	f.Helper()
	m := &member{f: f}
	opts = append(opts, proto.opts...)
	opts = append(opts, kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(f.topic), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, now map[string][]int32) { m.change(now[f.topic], nil) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.change(nil, gone[f.topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.change(nil, gone[f.topic]) }),
	)
	m.Client = f.cluster.Client(f, opts...)
	return m
}

func (m *member) change(now, gone []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.owned = slices.DeleteFunc(m.mu.owned, func(p int32) bool { return slices.Contains(gone, p) })
	m.mu.owned = append(m.mu.owned, now...)
}

func (m *member) owned() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.mu.owned))
}

// awaitOwned returns when the member owns n partitions and has a place in the group.
func (m *member) awaitOwned(n int) {
	m.f.Helper()
	m.f.eventually("the assignment", func() bool { return len(m.owned()) == n && m.metadata().generation > 0 })
}

func (m *member) metadata() groupMetadata {
	id, generation := m.GroupMetadata()
	return groupMetadata{member: id, generation: generation}
}

// answer opens a transaction with one record, commits offset 1 of some partitions in it, and returns what the broker says
// to each. The transaction is aborted.
func (f *fixture) answer(who groupMetadata, partitions ...int32) map[int32]error {
	f.Helper()
	p := f.producer(kafkatest.Name(f))
	p.begin()
	f.must(p.produce("in a transaction that is aborted"))
	offsets := map[int32]int64{}
	for _, partition := range partitions {
		offsets[partition] = 1
	}
	answers := p.commitOffsets(who, "", offsets)
	f.must(p.end(kgo.TryAbort))
	if len(answers) != len(partitions) {
		f.Fatalf("answers for %d of %d partitions", len(answers), len(partitions))
	}
	return answers
}

func TestFence_StaleOrUnknownMembersAreRefusedAndNobodyIsNot(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols() {
		t.Run(proto.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, kafkatest.Shared(t, 1), 1)
			m := f.join(proto)
			m.awaitOwned(1)
			now := m.metadata()
			with := func(member string, generation int32) groupMetadata {
				return groupMetadata{member: member, generation: generation}
			}
			for _, tc := range []struct {
				name string
				who  groupMetadata
				want error
			}{
				{"current", now, nil},
				{"one generation behind", with(now.member, now.generation-1), proto.stale},
				{"one generation ahead", with(now.member, now.generation+1), proto.stale},
				{"unknown member", with("somebody-else", now.generation), kerr.UnknownMemberID},
				{"no member and no generation", nobody(), nil},
			} {
				f.want(tc.name, f.answer(tc.who, 0)[0], tc.want)
			}
			if got := m.metadata(); got != now {
				t.Fatalf("the group moved on during the test, from %+v to %+v", now, got)
			}
			m.Close() // leaves
			f.eventually("the end of the member", func() bool { return f.answer(now, 0)[0] != nil })
			f.want("a member that left", f.answer(now, 0)[0], kerr.UnknownMemberID)
		})
	}
}

func TestFence_MetadataFromBeforeARebalanceIsRefusedOnceAPartitionOfTheRequestMoved(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols() {
		t.Run(proto.name, func(t *testing.T) {
			t.Parallel()
			const partitions = 4
			f := newFixture(t, kafkatest.Shared(t, 1), partitions)
			first := f.join(proto)
			first.awaitOwned(partitions)
			before := first.metadata()
			second := f.join(proto)
			first.awaitOwned(partitions / 2)
			second.awaitOwned(partitions / 2)
			f.eventually("the new generation", func() bool { return first.metadata() != before })

			for _, partition := range first.owned() {
				want := proto.stale
				if proto.keeps {
					want = nil
				}
				f.want("a partition that stayed", f.answer(before, partition)[partition], want)
			}
			for _, partition := range second.owned() {
				f.want("a partition that moved", f.answer(before, partition)[partition], proto.stale)
			}
			for partition, got := range f.answer(before, 0, 1, 2, 3) {
				f.want("one request for all partitions, number "+strconv.Itoa(int(partition)), got, proto.stale)
			}
		})
	}
}

func TestFence_CurrentMetadataMayCommitThePartitionOfAnotherMember(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols() {
		t.Run(proto.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, kafkatest.Shared(t, 1), 2)
			first, second := f.join(proto), f.join(proto)
			first.awaitOwned(1)
			second.awaitOwned(1)
			// The broker may count the members' generations up once more after the partitions have moved.
			f.eventually("acceptance of the partition of another", func() bool {
				return f.answer(first.metadata(), second.owned()[0])[second.owned()[0]] == nil
			})
		})
	}
}

func TestFence_ACommitAfterRefusedOffsetsGoesThrough(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	m := f.join(protocols()[0])
	m.awaitOwned(1)
	stale := m.metadata()
	stale.generation--
	p := f.producer(kafkatest.Name(t))
	p.begin()
	f.must(p.produce("committed although its offset was refused"))
	f.want("the offset", p.commitOffsets(stale, "", map[int32]int64{0: 1})[0], kerr.IllegalGeneration)
	f.want("the commit", p.end(kgo.TryCommit), nil)
	if got := f.values(); len(got) != 1 {
		t.Errorf("readers see %q, want the one record", got)
	}
}

func TestFence_AZeroTopicIDIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	f.topicID = [16]byte{}
	f.want("an offset by name only", f.answer(nobody(), 0)[0], kerr.UnknownTopicID)
}
