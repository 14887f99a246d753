package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/schemas"
)

// KafkaConfig is how the settings say to reach the brokers.
func KafkaConfig(s *Settings, version string, logger *slog.Logger) kafka.Config {
	return kafka.Config{
		Brokers: s.Brokers, ClientID: clientID(s), Version: version, Rack: s.Rack, Logger: logger,
		TLS: kafka.TLS{
			Enabled: s.TLS.Enabled, CAPath: s.TLS.CAPath, CertPath: s.TLS.CertPath, KeyPath: s.TLS.KeyPath,
			ServerName: s.TLS.ServerName, InsecureSkipVerify: s.TLS.InsecureSkipVerify,
		},
		SASL: saslOf(s.SASL),
	}
}

// clientID is what brokers log and meter the worker by; its producers have their slot's number behind it.
func clientID(s *Settings) string {
	if s.InstanceID == "" {
		return s.App
	}
	return s.App + "-" + s.InstanceID
}

// saslOf gives the path of a password that came from a file, so that it is read again at each login.
func saslOf(s SASLSettings) kafka.SASL {
	out := kafka.SASL{Mechanism: s.Mechanism, Username: s.Username, PasswordPath: s.PasswordPath}
	if s.PasswordPath == "" {
		out.Password = s.Password.Reveal()
	}
	return out
}

// NewRegistry is the client of the Schema Registry, nil when none is set.
func NewRegistry(s *Settings) (*kafka.Registry, error) {
	r := s.Registry
	if r.URL == "" {
		return nil, nil //nolint:nilnil // No registry is set, which is no error.
	}
	c := kafka.RegistryConfig{
		URL: r.URL, Username: r.Username, PasswordPath: r.PasswordPath, TokenPath: r.TokenPath,
		TLS: kafka.TLS{CAPath: r.CAPath}, Timeout: r.Timeout, MaxSchemaBytes: int(s.Limits.SchemaBytes),
	}
	// A secret that came from a file is read again for each request.
	if c.PasswordPath == "" {
		c.Password = r.Password.Reveal()
	}
	if c.TokenPath == "" {
		c.Token = r.Token.Reveal()
	}
	return kafka.NewRegistry(c)
}

// NewDecoder is the decoder of every topic. registry may be nil.
func NewDecoder(s *Settings, registry *kafka.Registry) *schemas.Decoder {
	o := schemas.DecoderOptions{
		MaxBytes: int(s.Limits.RecordBytes), MaxDepth: s.Limits.JSONDepth, MaxValues: s.Limits.AvroValues,
		MaxSchemaBytes: int(s.Limits.SchemaBytes),
	}
	if registry != nil {
		o.Registry = registry
	}
	return schemas.NewDecoder(o)
}

// NewEncoder is the encoder of a topic. In the encoding avro the schema must be in the registry, under the topic's subject
// (TopicNameStrategy), unless the settings say to register it.
func NewEncoder(ctx context.Context, s *Settings, registry *kafka.Registry, topic string, enc schemas.Encoding, rec schemas.Record) (schemas.Encoder, error) {
	opts, err := EncoderOptions(ctx, s, registry, topic, enc, rec)
	if err != nil {
		return nil, err
	}
	return schemas.NewEncoder(enc, opts)
}

// EncoderOptions finds the schema id that an encoding needs for a topic.
func EncoderOptions(ctx context.Context, s *Settings, registry *kafka.Registry, topic string, enc schemas.Encoding, rec schemas.Record) (schemas.EncoderOptions, error) {
	opts := schemas.EncoderOptions{Record: rec}
	if enc != schemas.EncodingAvro {
		return opts, nil
	}
	if registry == nil {
		return opts, errors.New("encoding avro needs LATHE_SCHEMA_REGISTRY_URL")
	}
	subject := topic + "-value"
	if s.Registry.Register {
		id, err := registry.Register(ctx, subject, rec.Schema())
		if err != nil {
			return opts, fmt.Errorf("register the schema of %s: %w", topic, err)
		}
		opts.SchemaID = id
		return opts, nil
	}
	found, err := registry.Lookup(ctx, subject, rec.Schema())
	if err != nil {
		return opts, fmt.Errorf("find the schema of %s under subject %s (register it, or set LATHE_SCHEMA_REGISTRY_REGISTER=true): %w", topic, subject, err)
	}
	opts.SchemaID = found.ID
	return opts, nil
}

func topicsConfig(s *Settings) kafka.Topics {
	n := s.Topics()
	return kafka.Topics{
		Turns: n.Turns, ToolEvents: n.ToolEvents, TurnEvents: n.TurnEvents, TurnStatus: n.TurnStatus, Changelog: n.Changelog, DLQ: n.DLQ,
		Create: s.Topic.Create, AllowSingleReplica: s.Topic.AllowSingleReplica,
		DedupeRetention: s.DedupeRetention, AllowInfiniteTurns: s.Topic.AllowInfiniteTurns,
	}
}

func consumerTopic(t kafka.TopicInfo) consumer.Topic {
	return consumer.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions, MaxMessageBytes: t.MaxMessageBytes}
}

func consumerConfig(s *Settings, instance string, incarnation uint64, topics kafka.TopicSet, caps kafka.Capabilities) consumer.Config {
	return consumer.Config{
		Turns: consumerTopic(topics.Turns), Changelog: consumerTopic(topics.Changelog), DeadLetters: consumerTopic(topics.DLQ),
		ChangelogDeleteRetention: topics.Changelog.DeleteRetention,
		Outputs:                  []consumer.Topic{consumerTopic(topics.ToolEvents), consumerTopic(topics.TurnEvents)},
		Group:                    s.App, Rack: s.Rack, InstanceID: s.InstanceID, LeaveOnStop: s.LeaveOnStop, Protocol: consumer.Protocol(s.GroupProtocol), SessionTimeout: s.SessionTimeout,
		Partitioner: consumer.Partitioner(s.Topic.TurnsPartitioner), MaxTurnBytes: int(s.Limits.RecordBytes),
		Window: s.MaxInFlightPerPartition, MaxInFlight: s.MaxInFlight, MaxBufferedBytes: int64(s.MaxBufferedBytes),
		DrainBudget: s.DrainBudget,
		Txn: txn.Config{
			App: s.App, Instance: instance, ClientID: clientID(s), Incarnation: incarnation, Timeout: s.TransactionTimeout, TransactionVersion: caps.TransactionVersion,
		},
	}
}

// checkRecordLimit refuses a record limit that a topic cannot hold.
func checkRecordLimit(s *Settings, topics kafka.TopicSet) error {
	var faults []error
	for _, t := range []kafka.TopicInfo{topics.ToolEvents, topics.TurnEvents, topics.Changelog, topics.DLQ} {
		if t.MaxMessageBytes > 0 && int(s.Limits.RecordBytes) > t.MaxMessageBytes {
			faults = append(faults, fmt.Errorf("LATHE_MAX_RECORD_BYTES is %d, but topic %s takes records of at most %d bytes (max.message.bytes): raise the topic's or lower the setting",
				int(s.Limits.RecordBytes), t.Name, t.MaxMessageBytes))
		}
	}
	return errors.Join(faults...)
}

// valueBudget is what the value of a record may take so that key, headers and framing fit the record limit too.
func valueBudget(s *Settings) int { return int(s.Limits.RecordBytes) - 16<<10 }
