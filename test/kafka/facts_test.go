//go:build kafka

// Package kafka_test checks on Apache Kafka itself what the commit cycle rests on. Each test states a fact in its name; a
// Kafka or client version that changes one fails here before it does harm.
package kafka_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// patience is how long anything may take on a busy machine before its test fails.
const patience = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// fixture is a cluster with a topic and a group of its own.
type fixture struct {
	testing.TB

	ctx     context.Context
	cluster *kafkatest.Cluster
	topic   string
	topicID [16]byte
	group   string
	adm     *kadm.Client
}

func newFixture(tb testing.TB, cluster *kafkatest.Cluster, partitions int32) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*patience)
	tb.Cleanup(cancel)
	f := &fixture{TB: tb, ctx: ctx, cluster: cluster, group: kafkatest.Name(tb), adm: kadm.NewClient(cluster.Client(tb))}
	f.topic, f.topicID = f.newTopic(partitions)
	return f
}

func (f *fixture) newTopic(partitions int32) (string, [16]byte) {
	f.Helper()
	topic := f.cluster.Topic(f, partitions, nil)
	details, err := f.adm.ListTopics(f.ctx, topic)
	f.must(err)
	return topic, details[topic].ID
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// want fails the test when an error is not the wanted one; nil is wanted as nil.
func (f *fixture) want(what string, got, want error) {
	f.Helper()
	if !errors.Is(got, want) {
		f.Errorf("%s: %v, want %v", what, got, want)
	}
}

// eventually returns when the condition holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			f.Fatalf("%s did not come in %s", what, patience)
		}
	}
}

// producer is a transactional client that takes the partition of a record as it is.
type producer struct {
	*kgo.Client

	f  *fixture
	id string
}

func (f *fixture) producer(id string, opts ...kgo.Opt) *producer {
	f.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3) // later versions are for brokers
	opts = append([]kgo.Opt{
		kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxVersions(versions),
	}, opts...)
	return &producer{Client: f.cluster.Client(f, opts...), f: f, id: id}
}

func (p *producer) begin() {
	p.f.Helper()
	p.f.must(p.BeginTransaction())
}

// produce writes one record to partition 0 and returns the broker's answer.
func (p *producer) produce(value string) error {
	r := &kgo.Record{Topic: p.f.topic, Value: []byte(value)}
	return p.ProduceSync(p.f.ctx, r).FirstErr()
}

func (p *producer) end(how kgo.TransactionEndTry) error { return p.EndTransaction(p.f.ctx, how) }

// identity returns producer id and epoch.
func (p *producer) identity() (int64, int16) {
	p.f.Helper()
	id, epoch, err := p.ProducerID(p.f.ctx)
	p.f.must(err)
	return id, epoch
}

// groupMetadata is who commits offsets.
type groupMetadata struct {
	member     string
	generation int32
	instance   *string
}

// nobody is group metadata that brokers take unfenced.
func nobody() groupMetadata { return groupMetadata{generation: -1} }

// offsetsRequest is a TxnOffsetCommit as the worker makes it by hand.
func (p *producer) offsetsRequest(who groupMetadata, metadata string, offsets map[int32]int64) *kmsg.TxnOffsetCommitRequest {
	p.f.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = p.id, p.f.group
	req.ProducerID, req.ProducerEpoch = p.identity()
	req.MemberID, req.Generation, req.InstanceID = who.member, who.generation, who.instance
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = p.f.topic, p.f.topicID
	for partition, offset := range offsets {
		entry := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		entry.Partition, entry.Offset, entry.Metadata = partition, offset, &metadata
		topic.Partitions = append(topic.Partitions, entry)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// commitOffsets returns the broker's answer by partition. What the broker only puts off is asked again, as the worker does.
func (p *producer) commitOffsets(who groupMetadata, metadata string, offsets map[int32]int64) map[int32]error {
	p.f.Helper()
	answers := map[int32]error{}
	p.f.eventually("an answer to TxnOffsetCommit", func() bool {
		resp, err := p.offsetsRequest(who, metadata, offsets).RequestWith(p.f.ctx, p.Client)
		p.f.must(err)
		for _, topic := range resp.Topics {
			for _, partition := range topic.Partitions {
				err := kerr.ErrorForCode(partition.ErrorCode)
				if errors.Is(err, kerr.ConcurrentTransactions) {
					return false
				}
				answers[partition.Partition] = err
			}
		}
		return true
	})
	return answers
}

// committed returns the committed offset and metadata of partition 0, when no transaction holds it any more.
func (f *fixture) committed() (int64, string) {
	f.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = f.group
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID, topic.Partitions = f.topic, f.topicID, []int32{0}
	group.Topics = append(group.Topics, topic)
	req.Groups, req.RequireStable = append(req.Groups, group), true
	cl := f.cluster.Client(f)
	var offset int64
	var metadata string
	f.eventually("a stable offset", func() bool {
		resp, err := req.RequestWith(f.ctx, cl)
		f.must(err)
		partition := resp.Groups[0].Topics[0].Partitions[0]
		if errors.Is(kerr.ErrorForCode(partition.ErrorCode), kerr.UnstableOffsetCommit) {
			return false
		}
		f.must(kerr.ErrorForCode(partition.ErrorCode))
		offset = partition.Offset
		if partition.Metadata != nil {
			metadata = *partition.Metadata
		}
		return true
	})
	return offset, metadata
}

// values returns what a read_committed reader sees of a topic of one partition, up to a last record that is committed here.
func (f *fixture) values() []string {
	f.Helper()
	const last = "the last record"
	p := f.producer(kafkatest.Name(f))
	p.begin()
	f.must(p.produce(last))
	f.must(p.end(kgo.TryCommit))
	cl := f.cluster.Client(f, kgo.ConsumeTopics(f.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var values []string
	for more := true; more; {
		fetches := cl.PollFetches(f.ctx)
		f.must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == last {
				more = false
				return
			}
			values = append(values, string(r.Value))
		})
	}
	return values
}
