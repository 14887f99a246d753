package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// minTxnOffsetCommit is the version of TxnOffsetCommit that carries the group's member and generation: the fence of
	// the commit cycle (Kafka 2.5).
	minTxnOffsetCommit = 3
	// minMetadata is the version of Metadata that carries topic ids: how a topic that was made anew is noticed (Kafka 2.8).
	minMetadata = 10
	// minOffsetMetadata is what the metadata of one committed offset may take: two ids and some numbers.
	minOffsetMetadata = 512
	// capabilitiesTimeout bounds the questions to the brokers; one that does not answer is left out.
	capabilitiesTimeout = 15 * time.Second
)

// Capabilities is what the brokers can do, as far as it decides how the worker talks to them.
type Capabilities struct {
	// Brokers is the number of brokers in the cluster.
	Brokers int
	// TransactionVersion is the finalized level of the feature transaction.version; below 2 a transactional client must
	// send AddOffsetsToTxn before TxnOffsetCommit and keep to older versions.
	TransactionVersion int
	// ConsumerProtocol reports whether the KIP-848 group protocol is on.
	ConsumerProtocol bool
	// MaxTransactionTimeout is the longest transaction timeout; 0 when it may not be read.
	MaxTransactionTimeout time.Duration
	// MaxOffsetMetadata is the most bytes of metadata of a committed offset; 0 when it may not be read.
	MaxOffsetMetadata int
}

// CheckBrokers returns what the brokers can do. It refuses brokers without what the worker rests on, and a transaction
// timeout that they would refuse.
func CheckBrokers(ctx context.Context, cl *kgo.Client, transactionTimeout time.Duration) (Capabilities, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, capabilitiesTimeout, errors.New("the brokers do not answer"))
	defer cancel()
	adm := kadm.NewClient(cl)
	versions, err := adm.ApiVersions(ctx)
	if err != nil {
		return Capabilities{}, fmt.Errorf("ask the brokers what they can do: %w", err)
	}
	caps := Capabilities{Brokers: len(versions)}
	if err := caps.readVersions(versions); err != nil {
		return Capabilities{}, err
	}
	caps.readSettings(ctx, adm, versions)
	return caps, caps.check(transactionTimeout)
}

// readVersions takes what all answering brokers have in common: a cluster may be in the middle of an upgrade.
func (c *Capabilities) readVersions(versions kadm.BrokersApiVersions) error {
	var answered int
	var lastErr error
	epoch := int64(-1)
	for _, v := range versions.Sorted() {
		if v.Err != nil {
			lastErr = v.Err
			continue
		}
		answered++
		if err := needVersion(&v, kmsg.TxnOffsetCommit, minTxnOffsetCommit); err != nil {
			return err
		}
		if err := needVersion(&v, kmsg.Metadata, minMetadata); err != nil {
			return err
		}
		if raw := v.Raw(); raw.FinalizedFeaturesEpoch >= epoch { // the newest answer knows best
			epoch = raw.FinalizedFeaturesEpoch
			c.TransactionVersion = finalized(raw, "transaction.version")
			c.ConsumerProtocol = finalized(raw, "group.version") >= 1
		}
	}
	if answered == 0 {
		return fmt.Errorf("ask the brokers what they can do: none answers: %w", lastErr)
	}
	return nil
}

func needVersion(v *kadm.BrokerApiVersions, key kmsg.Key, needed int16) error {
	if have, ok := v.KeyMaxVersion(key.Int16()); ok && have >= needed {
		return nil
	}
	return fmt.Errorf("broker %d is too old (it looks like Kafka %s and has no %s of version %d): "+
		"Apache Kafka 2.8 or later is needed", v.NodeID, v.VersionGuess(), key.Name(), needed)
}

func finalized(v *kmsg.ApiVersionsResponse, feature string) int {
	for _, f := range v.FinalizedFeatures {
		if f.Name == feature {
			return int(f.MaxVersionLevel)
		}
	}
	return 0
}

// readSettings reads the settings of one broker that answers. They may be forbidden to read; then the broker itself will
// refuse what does not fit.
func (c *Capabilities) readSettings(ctx context.Context, adm *kadm.Client, versions kadm.BrokersApiVersions) {
	for _, v := range versions.Sorted() {
		if v.Err != nil {
			continue
		}
		configs, err := adm.DescribeBrokerConfigs(ctx, v.NodeID)
		if err != nil || len(configs) != 1 || configs[0].Err != nil {
			continue
		}
		values := configValues(configs[0])
		c.MaxTransactionTimeout = time.Duration(values.number("transaction.max.timeout.ms", 0)) * time.Millisecond
		c.MaxOffsetMetadata = int(values.number("offset.metadata.max.bytes", 0))
		return
	}
}

func (c *Capabilities) check(transactionTimeout time.Duration) error {
	var faults []error
	if c.MaxTransactionTimeout > 0 && transactionTimeout > c.MaxTransactionTimeout {
		faults = append(faults, fmt.Errorf("LATHE_TRANSACTION_TIMEOUT is %s, but transaction.max.timeout.ms of the brokers "+
			"allows %s", transactionTimeout, c.MaxTransactionTimeout))
	}
	if c.MaxOffsetMetadata > 0 && c.MaxOffsetMetadata < minOffsetMetadata {
		faults = append(faults, fmt.Errorf("offset.metadata.max.bytes of the brokers is %d, but the worker needs %d",
			c.MaxOffsetMetadata, minOffsetMetadata))
	}
	return errors.Join(faults...)
}

// configMap is the settings of one topic or broker.
type configMap map[string]string

func configValues(resource kadm.ResourceConfig) configMap {
	values := make(configMap, len(resource.Configs))
	for _, config := range resource.Configs {
		if config.Value != nil {
			values[config.Key] = *config.Value
		}
	}
	return values
}

// number returns a numeric setting, or a default when the broker does not name it.
func (m configMap) number(key string, otherwise int64) int64 {
	n, err := strconv.ParseInt(m[key], 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// duration returns a setting in milliseconds; -1 of Kafka, for ever, stays negative.
func (m configMap) duration(key string, otherwise time.Duration) time.Duration {
	n := m.number(key, otherwise.Milliseconds())
	if n < 0 {
		return Forever
	}
	// Java's largest long stands for ever too; as nanoseconds it would overflow.
	if n > int64(maxDuration/time.Millisecond) {
		return Forever
	}
	return time.Duration(n) * time.Millisecond
}

// Forever is a retention without end.
const Forever time.Duration = -1

const maxDuration time.Duration = 1<<63 - 1
