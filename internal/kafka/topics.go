package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics names the topics of the worker and says how they are made and checked.
type Topics struct {
	Turns, ToolEvents, TurnEvents, TurnStatus, Changelog, DLQ string
	// Create makes the topics that are missing, except Turns.
	Create bool
	// AllowSingleReplica takes topics with one replica on a cluster of several brokers.
	AllowSingleReplica bool
	// DedupeRetention is how long an ended turn is remembered: the topic of turns must not keep records for longer, or one that is
	// read again would run again. 0 is not checked. AllowInfiniteTurns takes a topic that keeps them for ever.
	DedupeRetention    time.Duration
	AllowInfiniteTurns bool
}

// TopicInfo is one topic as the brokers have it.
type TopicInfo struct {
	Name       string
	ID         [16]byte
	Partitions int32
	// Replicas is the smallest number of replicas of its partitions.
	Replicas int
	// MaxMessageBytes is the largest batch the topic takes.
	MaxMessageBytes int
	// Retention is how long records are kept after their segment is closed; [Forever] without end.
	Retention time.Duration
	// Segment is how long a segment stays open at most.
	Segment time.Duration
	// DeleteRetention is how long a tombstone is kept in a compacted topic.
	DeleteRetention time.Duration
	// CleanupPolicy is what happens to old records: delete, compact, or both with a comma between.
	CleanupPolicy string
	// MinInSync is how many replicas must have a record before it counts as written.
	MinInSync int
}

// TopicSet is all topics of the worker.
type TopicSet struct {
	Turns, ToolEvents, TurnEvents, TurnStatus, Changelog, DLQ TopicInfo
}

// EnsureTopics makes the topics that are missing, if it may, and returns all of them as the brokers have them. It refuses
// topics that cannot keep the worker's promises, naming every fault at once.
func EnsureTopics(ctx context.Context, cl *kgo.Client, cfg Topics, logger *slog.Logger) (TopicSet, error) {
	a := topicAdmin{cl: cl, adm: kadm.NewClient(cl), cfg: cfg, log: logger}
	meta, err := a.look(ctx)
	if err != nil {
		return TopicSet{}, err
	}
	partitions, err := a.turnsPartitions(meta)
	if err != nil {
		return TopicSet{}, err
	}
	if missing := a.missing(meta); len(missing) > 0 {
		if meta, err = a.create(ctx, missing, partitions, len(meta.brokers)); err != nil {
			return TopicSet{}, err
		}
	}
	set, err := a.describe(ctx, meta)
	if err != nil {
		return TopicSet{}, err
	}
	return set, a.check(ctx, &set, len(meta.brokers))
}

// topicAdmin is one run of EnsureTopics.
type topicAdmin struct {
	cl  *kgo.Client
	adm *kadm.Client
	cfg Topics
	log *slog.Logger
}

// topicRole is what the worker wants of one topic.
type topicRole struct {
	name string
	// what the topic holds, for errors.
	what string
	// compacted topics keep the last record of each key; all others must keep every record.
	compacted bool
	// ephemeral topics may lose records.
	ephemeral bool
	// configs are the settings that the topic is made with.
	configs map[string]string
	// info is its place in the set.
	info func(*TopicSet) *TopicInfo
}

// roles returns the wanted topics, that of turns first.
func (t Topics) roles() []topicRole {
	// Events of one session have one key: under a broker whose default is compaction all but the last would go.
	keepAll := map[string]string{"cleanup.policy": "delete"}
	return []topicRole{
		{name: t.Turns, what: "turns", configs: keepAll, info: func(s *TopicSet) *TopicInfo { return &s.Turns }},
		{name: t.ToolEvents, what: "tool events", configs: keepAll, info: func(s *TopicSet) *TopicInfo { return &s.ToolEvents }},
		{name: t.TurnEvents, what: "turn events", configs: keepAll, info: func(s *TopicSet) *TopicInfo { return &s.TurnEvents }},
		{
			name: t.TurnStatus, what: "turn status", configs: statusConfigs(), ephemeral: true,
			info: func(s *TopicSet) *TopicInfo { return &s.TurnStatus },
		},
		{
			name: t.Changelog, what: "state", configs: changelogConfigs(), compacted: true,
			info: func(s *TopicSet) *TopicInfo { return &s.Changelog },
		},
		{name: t.DLQ, what: "dead letters", configs: keepAll, info: func(s *TopicSet) *TopicInfo { return &s.DLQ }},
	}
}

// statusConfigs keep what is only of interest now for about an hour.
func statusConfigs() map[string]string {
	return map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "900000"}
}

// changelogConfigs keep a restore short: most records of the changelog are soon replaced or deleted, but only closed
// segments are compacted, and a tombstone must stay until the slowest worker that resumes from its local copy has seen it.
func changelogConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"delete.retention.ms":       "604800000", // 7 days
		"min.compaction.lag.ms":     "60000",
		"min.cleanable.dirty.ratio": "0.2",
		"segment.bytes":             "134217728",
		"segment.ms":                "86400000",
	}
}

// clusterMeta is what the brokers say of the cluster and the wanted topics.
type clusterMeta struct {
	brokers []int32
	topics  map[string]topicMeta
}

// topicMeta is one topic; without partitions it does not exist.
type topicMeta struct {
	id         [16]byte
	partitions []kmsg.MetadataResponseTopicPartition
}

func (m topicMeta) exists() bool { return len(m.partitions) > 0 }

func (m topicMeta) count() int32 { return int32(len(m.partitions)) } //nolint:gosec // Kafka counts in int32

// isLed reports whether the topic can be written to.
func (m topicMeta) isLed() bool {
	for _, p := range m.partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			return false
		}
	}
	return m.exists()
}

// metadata asks a broker, or any of them, and not the client's own copy: that may be seconds old, and topics are being
// made.
func (a topicAdmin) metadata(ctx context.Context, from kmsg.Requestor) (clusterMeta, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, role := range a.cfg.roles() {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &role.name
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, from)
	if err != nil {
		return clusterMeta{}, fmt.Errorf("look for the topics: %w", err)
	}
	meta := clusterMeta{topics: make(map[string]topicMeta, len(resp.Topics))}
	for _, b := range resp.Brokers {
		meta.brokers = append(meta.brokers, b.NodeID)
	}
	var faults []error
	for _, topic := range resp.Topics {
		if topic.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(topic.ErrorCode); {
		case err == nil:
			meta.topics[*topic.Topic] = topicMeta{id: topic.TopicID, partitions: topic.Partitions}
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case errors.Is(err, kerr.LeaderNotAvailable): // it is being made
			meta.topics[*topic.Topic] = topicMeta{id: topic.TopicID, partitions: topic.Partitions}
		default:
			faults = append(faults, fmt.Errorf("look for topic %s: %w", *topic.Topic, err))
		}
	}
	return meta, errors.Join(faults...)
}

// look returns what any broker knows: one that lags behind does not know a topic that was made a moment ago.
func (a topicAdmin) look(ctx context.Context) (clusterMeta, error) {
	meta, err := a.metadata(ctx, a.cl)
	if err != nil || len(a.missing(meta)) == 0 {
		return meta, err
	}
	for _, id := range meta.brokers {
		seen, err := a.metadata(ctx, a.cl.Broker(int(id)))
		if err != nil {
			continue // a broker that is just going away must not stop the start
		}
		for name, topic := range seen.topics {
			if !meta.topics[name].exists() {
				meta.topics[name] = topic
			}
		}
	}
	return meta, nil
}

// describe reads the settings of all topics.
func (a topicAdmin) describe(ctx context.Context, meta clusterMeta) (TopicSet, error) {
	var set TopicSet
	for _, role := range a.cfg.roles() {
		values, err := a.describeTopic(ctx, role.name)
		if err != nil {
			return TopicSet{}, fmt.Errorf("read the settings of topic %s: %w", role.name, err)
		}
		*role.info(&set) = topicInfo(role.name, meta.topics[role.name], values)
	}
	return set, nil
}

// describeTopic reads the settings of one topic. A broker that does not know it yet is asked again: it does exist.
func (a topicAdmin) describeTopic(ctx context.Context, topic string) (configMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, createTimeout, errors.New("the broker that was asked does not know it"))
	defer cancel()
	for {
		configs, err := a.adm.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return nil, err
		}
		config, err := configs.On(topic, nil)
		if err == nil {
			err = config.Err
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return configValues(config), err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(createPoll):
		}
	}
}

func topicInfo(name string, topic topicMeta, values configMap) TopicInfo {
	const week = 7 * 24 * time.Hour
	info := TopicInfo{
		Name: name, ID: topic.id, Partitions: topic.count(),
		MaxMessageBytes: int(values.number("max.message.bytes", 1048588)),
		Retention:       values.duration("retention.ms", week),
		Segment:         values.duration("segment.ms", week),
		DeleteRetention: values.duration("delete.retention.ms", 24*time.Hour),
		CleanupPolicy:   values["cleanup.policy"],
		MinInSync:       int(values.number("min.insync.replicas", 1)),
	}
	for i, partition := range topic.partitions {
		if i == 0 || len(partition.Replicas) < info.Replicas {
			info.Replicas = len(partition.Replicas)
		}
	}
	return info
}
