package txn

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	metadataMinAge    = 250 * time.Millisecond
	unknownTopicLimit = 2 * time.Second
)

// slot is one transactional producer. Its client is nil from a failure until it is made anew.
type slot struct {
	cfg    *Config
	number int
	txID   string
	client *kgo.Client
}

// open makes the client and takes the transactional id over: the coordinator fences whoever had it, and finishes or
// aborts what was left open.
func (s *slot) open(ctx context.Context) error {
	client, err := s.cfg.NewClient(s.options()...)
	if err != nil {
		return fmt.Errorf("make the client of transactional id %s: %w", s.txID, err)
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		err = fmt.Errorf("take transactional id %s: %w", s.txID, cause(ctx, err))
		if resource := forbidden(err, subject{txID: s.txID}); resource != "" {
			return &ConfigError{Resource: resource, Err: err}
		}
		return err
	}
	s.client = client
	return nil
}

// discard closes the client. It is never used again: a late produce of it must not join a later transaction.
func (s *slot) discard() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

func (s *slot) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.ClientID(s.cfg.ClientID + "-txn-" + strconv.Itoa(s.number)),
		kgo.TransactionalID(s.txID),
		kgo.TransactionTimeout(s.cfg.Timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 { return int32(s.cfg.batchBytes(topic)) }), //nolint:gosec,forbidigo // Bounded; a name of the library.
		Compression(),
		// The whole cycle is handed over before it is flushed, so that each broker gets one request for it; with a linger
		// of zero alone the first record would travel by itself.
		kgo.ProducerLinger(0),
		kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.RecordRetries(math.MaxInt32),
		// A leader that moves must be found well within a cycle's deadline, and so must a topic that is gone.
		kgo.MetadataMinAge(metadataMinAge),
		kgo.UnknownTopicRetries(int(unknownTopicLimit / metadataMinAge)),
		kgo.MaxVersions(s.versions()),
	}
}

// versions caps what the client speaks. From AddPartitionsToTxn v4 on the request is between brokers. Below
// transaction.version 2 a broker may know the newer versions and must not be spoken to in them.
func (s *slot) versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3)
	if s.cfg.TransactionVersion < 2 {
		v.SetMaxKeyVersion(kmsg.Produce.Int16(), 11)
		v.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 4)
		v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 4)
	}
	return v
}
