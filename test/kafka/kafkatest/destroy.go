package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cleanupPolicy is the topic setting that says whether records are deleted or compacted.
const cleanupPolicy = "cleanup.policy"

// SetTopicConfig sets one setting of a topic.
func (c *Cluster) SetTopicConfig(ctx context.Context, topic, key, value string) error {
	return c.administer(func(_ *kgo.Client, adm *kadm.Client) error { return setConfig(ctx, adm, topic, key, value) })
}

// SetConfig sets one setting of a topic on any broker, the embedded one too, and returns when it is described so: a broker learns of
// it a little later than the controller.
func SetConfig(ctx context.Context, adm *kadm.Client, topic, key, value string) error {
	if err := setConfig(ctx, adm, topic, key, value); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		settings, err := ownConfigs(ctx, adm, topic)
		if err != nil {
			return err
		}
		if got := settings[key]; got != nil && *got == value {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of topic %s: %w", key, topic, context.Cause(ctx))
		}
	}
}

// setConfig asks again when no answer came: the client may have picked a broker that is stopped.
func setConfig(ctx context.Context, adm *kadm.Client, topic, key, value string) error {
	const tries = 10
	for try := 1; ; try++ {
		done, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
		if err == nil {
			_, err = done.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
		}
		if err == nil {
			return nil
		}
		if refused := (*kerr.Error)(nil); errors.As(err, &refused) || try == tries || ctx.Err() != nil {
			return fmt.Errorf("set %s of topic %s: %w", key, topic, err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// DeleteTopic deletes a topic and returns when every broker has forgotten it.
func (c *Cluster) DeleteTopic(ctx context.Context, topic string) error {
	return c.administer(func(_ *kgo.Client, adm *kadm.Client) error { return c.deleteTopic(ctx, adm, topic) })
}

func (c *Cluster) deleteTopic(ctx context.Context, adm *kadm.Client, topic string) error {
	if _, err := adm.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return c.awaitViews(ctx, "topic "+topic+" is gone", func(views []*kmsg.MetadataResponse) error {
		for _, v := range views {
			for _, t := range v.Topics {
				if *t.Topic == topic {
					return errors.New("a broker still knows it")
				}
			}
		}
		return nil
	})
}

// RecreateTopic deletes a topic and makes it again, with as many partitions and the same settings. It returns when every
// broker knows the new leaders.
func (c *Cluster) RecreateTopic(ctx context.Context, topic string) error {
	return c.administer(func(cl *kgo.Client, adm *kadm.Client) error {
		partitions, err := c.partitions(ctx, topic)
		if err != nil {
			return err
		}
		settings, err := ownConfigs(ctx, adm, topic)
		if err != nil {
			return err
		}
		if err := c.deleteTopic(ctx, adm, topic); err != nil {
			return err
		}
		_, err = createTopic(ctx, cl, topic, partitions, settings)
		return err
	})
}

// ownConfigs are the settings that a topic does not have from its broker.
func ownConfigs(ctx context.Context, adm *kadm.Client, topic string) (map[string]*string, error) {
	described, err := adm.DescribeTopicConfigs(ctx, topic)
	var of kadm.ResourceConfig
	if err == nil {
		of, err = described.On(topic, func(r *kadm.ResourceConfig) error { return r.Err })
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of topic %s: %w", topic, err)
	}
	settings := make(map[string]*string)
	for _, s := range of.Configs {
		if s.Source == kmsg.ConfigSourceDynamicTopicConfig {
			settings[s.Key] = s.Value
		}
	}
	return settings, nil
}

// Truncate deletes the records of a topic below the given offsets, by partition; -1 is the end of the log. Brokers refuse
// that for a topic that is only compacted, so its cleanup.policy is another one for the moment, as an operator's would be.
func (c *Cluster) Truncate(ctx context.Context, topic string, below map[int32]int64) error {
	return c.administer(func(_ *kgo.Client, adm *kadm.Client) (err error) {
		settings, err := ownConfigs(ctx, adm, topic)
		if err != nil {
			return err
		}
		if policy := settings[cleanupPolicy]; policy != nil {
			if err := setConfig(ctx, adm, topic, cleanupPolicy, "delete,compact"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, setConfig(ctx, adm, topic, cleanupPolicy, *policy)) }()
		}
		return deleteRecords(ctx, adm, topic, below)
	})
}

// deleteRecords tries again while the leaders have not heard of the new policy.
func deleteRecords(ctx context.Context, adm *kadm.Client, topic string, below map[int32]int64) error {
	offsets := make(kadm.Offsets)
	for p, at := range below {
		offsets.AddOffset(topic, p, at, -1)
	}
	for {
		done, err := adm.DeleteRecords(ctx, offsets)
		if err == nil {
			err = done.Error()
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, kerr.PolicyViolation):
			return fmt.Errorf("delete records of topic %s: %w", topic, err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return fmt.Errorf("delete records of topic %s: %w: %w", topic, context.Cause(ctx), err)
		}
	}
}
