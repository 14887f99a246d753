package app

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// settingsPrefix starts the name of every setting.
const settingsPrefix = "LATHE_"

// Settings say where and how a worker runs; the manifest says what. Each field is one environment variable, named by its
// env tag behind LATHE_; docs/configuration.md is generated from the tags.
type Settings struct {
	App        string   `env:"APP,default=lathe" section:"The worker" desc:"names the deployment: consumer group, part of the transactional ids and of the changelog's name. One per deployment; two workers with one APP share the work"`
	Brokers    []string `env:"BROKERS,required" desc:"seed brokers, host:port separated by commas"`
	InstanceID string   `env:"INSTANCE_ID" shown:"the host name, without static membership" desc:"identity of this process, stable over restarts and unique in APP, such as the name of a StatefulSet's pod. If set, it is also the static member id in the consumer group"`
	Rack       string   `env:"RACK" desc:"where this process runs, as the brokers' broker.rack says it, to read from the nearest replica"`
	Manifest   string   `env:"MANIFEST,default=lathe.yaml" path:"true" desc:"the manifest, see manifest.md"`
	DataDir    string   `env:"DATA_DIR,default=./data" path:"true" desc:"where the local state is kept. It may be lost: the changelog rebuilds it, which takes time"`
	AdminAddr  string   `env:"ADMIN_ADDR,default=:9090" desc:"where /livez, /readyz and /metrics are served"`

	LogLevel  string `env:"LOG_LEVEL,default=info" oneof:"debug|info|warn|error" desc:"least level that is logged"`
	LogFormat string `env:"LOG_FORMAT" oneof:"json|text" shown:"json; text on a terminal" desc:"form of the log lines"`
	Capture   string `env:"CAPTURE,default=io" oneof:"none|metadata|io" desc:"what events carry of tool inputs, outputs and model text. This release knows only io, which is all of it"`

	GroupProtocol           string        `env:"GROUP_PROTOCOL,default=classic" section:"Consuming" oneof:"classic|consumer" desc:"the consumer group protocol; consumer is KIP-848, for brokers from 4.0 (better 4.3) on"`
	SessionTimeout          time.Duration `env:"SESSION_TIMEOUT,default=45s" min:"1s" max:"30m" desc:"after how long without a heartbeat the group takes a worker for dead. Under the consumer protocol the broker decides"`
	LeaveOnStop             bool          `env:"LEAVE_ON_STOP,default=false" desc:"leave the group when the worker stops although INSTANCE_ID is set: its partitions go to others at once and not after SESSION_TIMEOUT. For deployments that scale in by themselves; each restart then moves partitions"`
	MaxInFlight             int           `env:"MAX_IN_FLIGHT,default=1024" min:"1" desc:"turns that run at once in this worker"`
	MaxInFlightPerPartition int           `env:"MAX_IN_FLIGHT_PER_PARTITION,default=256" min:"1" desc:"turns that run at once of one partition"`
	MaxBufferedBytes        ByteSize      `env:"MAX_BUFFERED_BYTES,default=256MiB" min:"8MiB" desc:"memory for records and effects that wait, and for restoring state, shared out evenly among the partitions. At the bound, fetching pauses, no turn begins, and turns under way wait before their next request or call"`
	TransactionTimeout      time.Duration `env:"TRANSACTION_TIMEOUT,default=15s" min:"1s" max:"15m" desc:"after how long the broker aborts an open transaction; it bounds how long readers wait behind a worker that died in one"`
	DrainBudget             time.Duration `env:"DRAIN_BUDGET,default=20s" min:"0s" desc:"how long a stop or a rebalance waits for running calls. In Kubernetes, keep terminationGracePeriodSeconds some seconds above it"`
	DedupeRetention         time.Duration `env:"DEDUPE_RETENTION,default=15d" min:"1m" desc:"how long at least an ended turn is remembered, so that a repeat of it is recognised, and a cancel that came before its turn. Expiry takes up to an hour longer. It must be at least retention.ms + segment.ms of the topic of turns"`
	SessionRetention        time.Duration `env:"SESSION_RETENTION,default=30d" min:"1m" desc:"how long the history of a session is kept after its last turn. Expiry takes up to an hour longer"`
	SessionTurns            int           `env:"SESSION_TURNS,default=1000" min:"1" desc:"turns that the history of a session keeps; the oldest go"`
	SessionBytes            ByteSize      `env:"SESSION_BYTES,default=8MiB" min:"64KiB" desc:"size of the history that a session keeps; the oldest turns go, never the last one. All of it is read for each turn"`
	StateFormat             int           `env:"STATE_FORMAT,default=1" min:"1" max:"1" desc:"version of the format that state is written in. A release reads its own and the one before, and writes the one before until this is set, so that the release before can take over again. This release knows format 1 alone"`

	Topic    TopicSettings    `section:"Topics"`
	Encoding EncodingSettings `section:"Encoding"`
	Registry RegistrySettings
	TLS      TLSSettings `section:"TLS and SASL"`
	SASL     SASLSettings
	Limits   LimitsSettings `section:"Limits of bad input"`
	Turn     TurnLimits     `section:"Limits of a turn"`
}

// TopicSettings name the topics and say how they are made.
type TopicSettings struct {
	Prefix             string `env:"TOPIC_PREFIX,default=lathe." desc:"starts the default name of each topic"`
	Turns              string `env:"TOPIC_TURNS" shown:"<prefix>turns" desc:"whole name of the topic of turn events, the input"`
	ToolEvents         string `env:"TOPIC_TOOL_EVENTS" shown:"<prefix>tool-events" desc:"whole name of the topic of tool:start and tool:result"`
	TurnEvents         string `env:"TOPIC_TURN_EVENTS" shown:"<prefix>turn-events" desc:"whole name of the topic of turn:start, turn:step, turn:end and turn:rejected"`
	TurnStatus         string `env:"TOPIC_TURN_STATUS" shown:"<prefix>turn-status" desc:"whole name of the topic of ephemeral status"`
	Changelog          string `env:"TOPIC_CHANGELOG" shown:"<prefix><app>.changelog" desc:"whole name of the compacted topic of this deployment's state"`
	DLQ                string `env:"TOPIC_DLQ" shown:"<prefix>turns.dlq" desc:"whole name of the dead-letter topic"`
	Create             bool   `env:"CREATE_TOPICS,default=true" desc:"create the topics that are missing, except the one of turns"`
	AllowSingleReplica bool   `env:"ALLOW_SINGLE_REPLICA,default=false" desc:"accept topics with one replica on a cluster of several brokers, where losing that broker loses events and state"`
	AllowInfiniteTurns bool   `env:"ALLOW_INFINITE_TURNS_RETENTION,default=false" desc:"accept a topic of turns that keeps records for ever. A record that is read again after LATHE_DEDUPE_RETENTION, by a reset of offsets, runs again"`
	TurnsPartitioner   string `env:"TURNS_PARTITIONER,default=murmur2" oneof:"murmur2|crc32|any" desc:"how producers choose the partition of a turn. murmur2 is what Java and franz-go do (librdkafka: partitioner=murmur2_random), crc32 is librdkafka's consistent_random. any takes every key on any partition; that a key stays on one partition is then up to the producers"`
}

// EncodingSettings say how events are written. What comes in is recognised by itself.
type EncodingSettings struct {
	Default    schemas.Encoding `env:"ENCODING,default=json" oneof:"json|avro|avro-single" desc:"how events are written. avro frames with a schema id from a Schema Registry, avro-single needs no registry. Input is recognised whatever is set"`
	Turns      schemas.Encoding `env:"ENCODING_TURNS" oneof:"json|avro|avro-single" shown:"LATHE_ENCODING" desc:"how the submit command writes turns"`
	ToolEvents schemas.Encoding `env:"ENCODING_TOOL_EVENTS" oneof:"json|avro|avro-single" shown:"LATHE_ENCODING" desc:"how tool events are written"`
	TurnEvents schemas.Encoding `env:"ENCODING_TURN_EVENTS" oneof:"json|avro|avro-single" shown:"LATHE_ENCODING" desc:"how turn:start, turn:step, turn:end and turn:rejected are written"`
	TurnStatus schemas.Encoding `env:"ENCODING_TURN_STATUS" oneof:"json|avro|avro-single" shown:"LATHE_ENCODING" desc:"how status events are written"`
}

// RegistrySettings reach a Schema Registry.
type RegistrySettings struct {
	URL      string `env:"SCHEMA_REGISTRY_URL" desc:"HTTP or HTTPS URL of the Schema Registry; needed to write avro and to read it"`
	Username string `env:"SCHEMA_REGISTRY_USERNAME" desc:"user for basic authentication"`
	Password Secret `env:"SCHEMA_REGISTRY_PASSWORD" desc:"password for basic authentication"`
	// PasswordPath is the file that Password came from, empty if it came from none; TokenPath likewise.
	PasswordPath, TokenPath string
	Token                   Secret        `env:"SCHEMA_REGISTRY_TOKEN" desc:"bearer token, instead of user and password"`
	CAPath                  string        `env:"SCHEMA_REGISTRY_CA_PATH" shown:"the system's" desc:"PEM file of the authorities that sign the registry's certificate"`
	Timeout                 time.Duration `env:"SCHEMA_REGISTRY_TIMEOUT,default=5s" min:"100ms" desc:"time for one request"`
	Register                bool          `env:"SCHEMA_REGISTRY_REGISTER,default=false" desc:"register the schemas of the output topics at start; else they must be there"`
}

// TLSSettings secure the connections to the brokers.
type TLSSettings struct {
	Enabled            bool   `env:"TLS_ENABLED,default=false" desc:"connect to the brokers with TLS (1.2 or later)"`
	CAPath             string `env:"TLS_CA_PATH" shown:"the system's" desc:"PEM file of the authorities that sign the brokers' certificates"`
	CertPath           string `env:"TLS_CERT_PATH" desc:"PEM file of the client certificate"`
	KeyPath            string `env:"TLS_KEY_PATH" desc:"PEM file of the client certificate's key"`
	ServerName         string `env:"TLS_SERVER_NAME" shown:"the broker's host" desc:"name the brokers' certificates are checked against"`
	InsecureSkipVerify bool   `env:"TLS_INSECURE_SKIP_VERIFY,default=false" desc:"take any certificate; for experiments only"`
}

// SASLSettings log in at the brokers.
type SASLSettings struct {
	Mechanism string `env:"SASL_MECHANISM" oneof:"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512" shown:"no login" desc:"how to log in at the brokers. PLAIN sends the password as it is and needs TLS"`
	Username  string `env:"SASL_USERNAME" desc:"user to log in as"`
	Password  Secret `env:"SASL_PASSWORD" desc:"password. If it comes from a file, that is read again at each login, so a changed password needs no restart"`
	// PasswordPath is the file that Password came from, empty if it came from none.
	PasswordPath string
}

// LimitsSettings bound what comes from outside.
type LimitsSettings struct {
	RecordBytes ByteSize `env:"MAX_RECORD_BYTES,default=1MiB" min:"64KiB" max:"64MiB" desc:"largest record read or written: key, value, headers and framing, before compression. The default fits a topic with Kafka's default max.message.bytes; raise both"`
	InputBytes  ByteSize `env:"MAX_INPUT_BYTES,default=512KiB" min:"1KiB" desc:"largest input of one tool call"`
	ResultBytes ByteSize `env:"MAX_RESULT_BYTES,default=512KiB" min:"1KiB" desc:"largest result of a tool that sets no max_result_bytes"`
	JSONDepth   int      `env:"MAX_JSON_DEPTH,default=64" min:"8" max:"1000" desc:"deepest nesting of JSON in turns, arguments and results"`
	AvroValues  int      `env:"MAX_AVRO_VALUES,default=131072" min:"1024" max:"16777216" desc:"most values in one Avro record: fields and items, nested ones included. An item may take no bytes, so the size alone bounds nothing"`
	SchemaBytes ByteSize `env:"MAX_SCHEMA_BYTES,default=256KiB" min:"16KiB" max:"16MiB" desc:"largest schema, with all it refers to, that is taken from the Schema Registry"`
}

// TurnLimits bound one turn. In the settings they hold for agents that set none of their own; in the manifest they are an
// agent's `limits`, where 0 stands for what was not set.
type TurnLimits struct {
	Steps               int           `env:"TURN_STEPS,default=16" yaml:"steps" min:"1" desc:"model responses"`
	Calls               int           `env:"TURN_CALLS,default=64" yaml:"calls" min:"1" desc:"tool calls, those of unknown tools included"`
	Parallel            int           `env:"TURN_PARALLEL,default=8" yaml:"parallel" min:"1" desc:"calls of one step that run at once"`
	ConsecutiveFailures int           `env:"TURN_CONSECUTIVE_FAILURES,default=3" yaml:"consecutive_failures" min:"1" desc:"calls of one tool that fail in a row"`
	Duration            time.Duration `env:"TURN_DURATION,default=10m" yaml:"duration" min:"1ms" desc:"time from the start of a turn to its end; a turn's own deadline can only be earlier"`
	ContextBytes        ByteSize      `env:"TURN_CONTEXT_BYTES,default=2MiB" yaml:"context_bytes" min:"1KiB" desc:"messages given to the model; older ones are left out, a call never without its result"`
}

// TopicNames are the names of the six topics.
type TopicNames struct {
	Turns, ToolEvents, TurnEvents, TurnStatus, Changelog, DLQ string
}

// Topics returns the names of the topics: those set, else prefix and default.
func (s *Settings) Topics() TopicNames {
	t := s.Topic
	return TopicNames{
		Turns:      cmp.Or(t.Turns, t.Prefix+"turns"),
		ToolEvents: cmp.Or(t.ToolEvents, t.Prefix+"tool-events"),
		TurnEvents: cmp.Or(t.TurnEvents, t.Prefix+"turn-events"),
		TurnStatus: cmp.Or(t.TurnStatus, t.Prefix+"turn-status"),
		Changelog:  cmp.Or(t.Changelog, t.Prefix+s.App+".changelog"),
		DLQ:        cmp.Or(t.DLQ, t.Prefix+"turns.dlq"),
	}
}

// Level returns the least level that is logged.
func (s *Settings) Level() slog.Level {
	switch s.LogLevel {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Resolved returns the encoding of each topic: the one set for it, else the default.
func (e EncodingSettings) Resolved() EncodingSettings {
	e.Turns = cmp.Or(e.Turns, e.Default)
	e.ToolEvents = cmp.Or(e.ToolEvents, e.Default)
	e.TurnEvents = cmp.Or(e.TurnEvents, e.Default)
	e.TurnStatus = cmp.Or(e.TurnStatus, e.Default)
	return e
}

// Or returns l with the limits of other where l sets none.
func (l TurnLimits) Or(other TurnLimits) TurnLimits {
	return TurnLimits{
		Steps:               cmp.Or(l.Steps, other.Steps),
		Calls:               cmp.Or(l.Calls, other.Calls),
		Parallel:            cmp.Or(l.Parallel, other.Parallel),
		ConsecutiveFailures: cmp.Or(l.ConsecutiveFailures, other.ConsecutiveFailures),
		Duration:            cmp.Or(l.Duration, other.Duration),
		ContextBytes:        cmp.Or(l.ContextBytes, other.ContextBytes),
	}
}
