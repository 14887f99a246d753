package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// exampleTurnsPartitions is the number of partitions in the command that makes the topic of turns: the most workers
	// that can share it, and hard to change later.
	exampleTurnsPartitions = 12
	// createTimeout bounds how long new topics may take until every broker knows them.
	createTimeout = 30 * time.Second
	// createPoll is the pause between two looks.
	createPoll = 50 * time.Millisecond
)

// turnsPartitions returns how many partitions the topic of turns has, or an error with the command that makes it.
func (a topicAdmin) turnsPartitions(meta clusterMeta) (int32, error) {
	turns := meta.topics[a.cfg.Turns]
	if !turns.exists() {
		return 0, fmt.Errorf("topic %s does not exist, and the worker does not choose how many partitions it has; create it with\n  %s",
			a.cfg.Turns, a.command(a.cfg.Turns, exampleTurnsPartitions, nil))
	}
	return turns.count(), nil
}

func (a topicAdmin) missing(meta clusterMeta) []topicRole {
	return slices.DeleteFunc(a.cfg.roles(), func(role topicRole) bool { return meta.topics[role.name].exists() })
}

// create makes the missing topics and returns the metadata that shows all of them. Nothing is made when one of them would
// be refused.
func (a topicAdmin) create(ctx context.Context, missing []topicRole, partitions int32, brokers int) (clusterMeta, error) {
	if !a.cfg.Create {
		var faults []error
		for _, role := range missing {
			faults = append(faults, fmt.Errorf("topic %s does not exist, and LATHE_CREATE_TOPICS is false; create it with\n  %s",
				role.name, a.command(role.name, partitions, role.configs)))
		}
		return clusterMeta{}, errors.Join(faults...)
	}
	if err := a.eachTopic(ctx, missing, partitions, brokers, a.adm.ValidateCreateTopics); err != nil {
		return clusterMeta{}, err
	}
	if err := a.eachTopic(ctx, missing, partitions, brokers, a.adm.CreateTopics); err != nil {
		return clusterMeta{}, err
	}
	for _, role := range missing {
		a.log.InfoContext(ctx, "topic created", slog.String("topic", role.name), slog.Int("partitions", int(partitions)))
	}
	return a.awaitLeaders(ctx, missing)
}

// createCall is CreateTopics, or its dry run.
type createCall func(
	ctx context.Context, partitions int32, replicas int16, configs map[string]*string, topics ...string,
) (kadm.CreateTopicResponses, error)

// eachTopic calls for each missing topic with the brokers' own replication. Another worker that starts at the same time
// may be quicker.
func (a topicAdmin) eachTopic(ctx context.Context, missing []topicRole, partitions int32, brokers int, call createCall) error {
	var faults []error
	for _, role := range missing {
		configs := make(map[string]*string, len(role.configs))
		for key, value := range role.configs {
			configs[key] = &value
		}
		const brokerDefault = -1
		responses, err := call(ctx, partitions, brokerDefault, configs, role.name)
		if err != nil {
			return fmt.Errorf("create topic %s: %w", role.name, err)
		}
		response := responses[role.name]
		switch {
		case errors.Is(response.Err, kerr.TopicAlreadyExists):
		case response.Err != nil:
			faults = append(faults, fmt.Errorf("create topic %s: %w: %s", role.name, response.Err, response.ErrMessage))
		case response.ReplicationFactor == 1:
			faults = append(faults, a.replicaFault(role, "would be created", brokers))
		}
	}
	return errors.Join(faults...)
}

// awaitLeaders returns when every broker knows the new topics and their leaders: one that does not yet would refuse to
// produce to them, or to commit their offsets.
func (a topicAdmin) awaitLeaders(ctx context.Context, created []topicRole) (clusterMeta, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, createTimeout, errors.New("the new topics get no leaders"))
	defer cancel()
	for {
		meta, known, err := a.knownEverywhere(ctx, created)
		if known || err != nil {
			return meta, err
		}
		select {
		case <-ctx.Done():
			return meta, fmt.Errorf("create the topics: %w", context.Cause(ctx))
		case <-time.After(createPoll):
		}
	}
}

// knownEverywhere asks each broker by itself, and then all together once more.
func (a topicAdmin) knownEverywhere(ctx context.Context, created []topicRole) (clusterMeta, bool, error) {
	meta, err := a.metadata(ctx, a.cl)
	if err != nil {
		return meta, false, err
	}
	for _, id := range meta.brokers {
		seen, err := a.metadata(ctx, a.cl.Broker(int(id)))
		if err != nil {
			return meta, false, nil //nolint:nilerr // a broker that does not answer now is asked again
		}
		if slices.ContainsFunc(created, func(role topicRole) bool { return !seen.topics[role.name].isLed() }) {
			return meta, false, nil
		}
	}
	meta, err = a.metadata(ctx, a.cl)
	return meta, err == nil, err
}

// command is the command line that makes a topic on this cluster.
func (a topicAdmin) command(topic string, partitions int32, configs map[string]string) string {
	seeds, _ := a.cl.OptValue(kgo.SeedBrokers).([]string)
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d",
		strings.Join(seeds, ","), topic, partitions)
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		fmt.Fprintf(&b, " --config %s=%s", key, configs[key])
	}
	return b.String()
}
