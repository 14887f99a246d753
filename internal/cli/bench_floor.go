package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// floorShape is what the floor writes for each turn: records that a worker was seen to write, in so many commits one after
// another.
type floorShape struct {
	Stages int   `json:"stages"`
	Shape  shape `json:"shape"`
}

// writeFloor writes the floor's shape to a file: one commit for turns that only read, four for those whose three calls must be
// durable before they run.
func writeFloor(path, kind string, s *shape) error {
	f := floorShape{Stages: 1, Shape: *s}
	if kind == benchWrite {
		f.Stages = 4
	}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the floor's shape: %w", err)
	}
	return nil
}

func readFloor(path string) (floorShape, error) {
	var f floorShape
	b, err := os.ReadFile(path) //nolint:gosec // The benchmark wrote it.
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read the floor's shape: %w", err)
	}
	return f, nil
}

func newBenchFloor(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "floor <shape>", Hidden: true, Args: cobra.ExactArgs(1), Short: "The same records through the same ring, without logic",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			shape, err := readFloor(args[0])
			if err != nil {
				return err
			}
			s, err := loadSettings(ctx, env, true)
			if err != nil {
				return err
			}
			return runFloor(ctx, s, shape)
		},
	}
}

// floor consumes turns and writes what a worker would, one cycle after another.
type floor struct {
	shape    floorShape
	settings *app.Settings
	names    app.TopicNames
	ids      map[string][16]byte
	parts    int32
	group    *kgo.Client
	ring     *txn.Ring
	// waiting are turns by what they still have to write.
	waiting  []floorTurn
	next     map[int32]int64
	baseline map[int32]string
	clNext   map[int32]int64
	carry    [3]float64
	// written counts the records of each kind: samples of one turn go out together, as the worker wrote them, and compress as well.
	written [4]int
}

type floorTurn struct {
	id        string
	key       []byte
	partition int32
	offset    int64
	stage     int
}

func runFloor(ctx context.Context, s *app.Settings, shape floorShape) error {
	f := &floor{
		shape: shape, settings: s, names: s.Topics(), next: make(map[int32]int64), baseline: make(map[int32]string), clNext: make(map[int32]int64),
	}
	serve, meters, err := floorMetrics(ctx, s.AdminAddr)
	if err != nil {
		return err
	}
	defer serve()
	if err := f.open(ctx, meters); err != nil {
		return err
	}
	defer f.ring.Close()
	defer f.group.Close()
	for ctx.Err() == nil {
		if err := f.poll(ctx); err != nil {
			return err
		}
		if err := f.cycle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// floorMetrics serves the ring's metrics where a worker would.
func floorMetrics(ctx context.Context, addr string) (stop func(), meters *sdkmetric.MeterProvider, err error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("start the floor's metrics: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("start the floor's metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // It ends when it is closed.
	}()
	return func() {
		_ = srv.Close() // Nothing is lost.
		<-done
	}, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), nil
}

func (f *floor) open(ctx context.Context, meters *sdkmetric.MeterProvider) error {
	newClient := clientConfig(f.settings).NewClient
	cl, err := newClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, f.names.Turns, f.names.TurnEvents)
	if err != nil {
		return fmt.Errorf("look up the floor's topics: %w", err)
	}
	f.parts, f.ids = int32(len(topics[f.names.Turns].Partitions)), map[string][16]byte{f.names.Turns: topics[f.names.Turns].ID} //nolint:gosec // Few.
	if f.ring, err = txn.Open(ctx, txn.Config{
		App: f.settings.App, Instance: "floor", Incarnation: 1, Group: f.settings.App, TransactionVersion: 2, Changelog: f.names.Changelog,
		NewClient: newClient, Logger: slog.New(slog.DiscardHandler), Meter: meters.Meter("floor"),
	}); err != nil {
		return err
	}
	f.group, err = newClient(kgo.ConsumerGroup(f.settings.App), kgo.ConsumeTopics(f.names.Turns), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(250*time.Millisecond))
	return err
}

// poll takes new turns; it waits only when there is nothing to write.
func (f *floor) poll(ctx context.Context) error {
	if len(f.waiting) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 0)
		defer cancel()
	}
	fetches := f.group.PollFetches(ctx)
	if err := firstError(fetches); err != nil {
		return err
	}
	fetches.EachRecord(func(rec *kgo.Record) {
		f.waiting = append(f.waiting, floorTurn{id: sentTurn(rec.Value), key: rec.Key, partition: rec.Partition, offset: rec.Offset})
		if _, ok := f.next[rec.Partition]; !ok {
			f.next[rec.Partition] = rec.Offset
		}
	})
	return nil
}

// cycle writes the next stage of every waiting turn and commits.
func (f *floor) cycle(ctx context.Context) error {
	if len(f.waiting) == 0 {
		return nil
	}
	var recs []*kgo.Record
	touched := make(map[int32]bool)
	next := make(map[int32]int64)
	rest := f.waiting[:0:0]
	for _, t := range f.waiting {
		t.stage++
		last := t.stage == f.shape.Stages
		recs = f.records(recs, t, last)
		touched[t.partition] = true
		if last {
			next[t.partition] = max(next[t.partition], t.offset+1)
		} else {
			rest = append(rest, t)
		}
	}
	member, generation := f.group.GroupMetadata()
	c := &txn.Cycle{Records: recs, Group: txn.Membership{MemberID: member, Generation: generation}}
	for p := range touched {
		f.next[p] = max(f.next[p], next[p])
		c.Offsets = append(c.Offsets, txn.Offset{
			Topic: f.names.Turns, TopicID: f.ids[f.names.Turns], Partition: p, Offset: f.next[p], LeaderEpoch: -1, ChangelogNext: f.clNext[p], Baseline: f.baseline[p],
		})
	}
	res, err := f.ring.Commit(ctx, c)
	switch {
	case ctx.Err() != nil: // The benchmark stopped the floor.
		return nil //nolint:nilerr // What it cut off is of no interest.
	case err != nil:
		return err
	case res.Outcome != txn.Committed:
		return fmt.Errorf("a cycle of the floor was not committed: %w", res.Err)
	}
	for p := range touched {
		f.baseline[p], f.clNext[p] = res.Metadata[p], res.ChangelogNext[p]
	}
	f.waiting = rest
	return nil
}

// records adds what one stage of a turn writes. Fractions of records per stage are carried over to the next turn.
func (f *floor) records(recs []*kgo.Record, t floorTurn, last bool) []*kgo.Record {
	key, stages, s := t.key, float64(f.shape.Stages), &f.shape.Shape
	for i, topic := range []struct {
		name    string
		perTurn float64
		samples []sampleRecord
	}{
		{f.names.Changelog, s.Changelog.Records / s.Turns, s.Changelog.Samples},
		{f.names.ToolEvents, s.Tool.Records / s.Turns, s.Tool.Samples},
		{f.names.TurnEvents, (s.Turn.Records - s.End.Records) / s.Turns, s.Turn.Samples},
	} {
		f.carry[i] += topic.perTurn / stages
		for ; f.carry[i] >= 1; f.carry[i]-- {
			recs = append(recs, f.record(i, topic.name, t.partition, key, topic.samples))
		}
	}
	if last {
		end := f.record(len(f.carry), f.names.TurnEvents, t.partition, key, s.End.Samples)
		end.Headers = slices.Clone(end.Headers)
		for i, h := range end.Headers {
			if h.Key == "ce_subject" {
				end.Headers[i].Value = []byte(t.id)
			}
		}
		recs = append(recs, end)
	}
	return recs
}

// record is the next sample of a kind, under a key of its own.
func (f *floor) record(kind int, topic string, partition int32, key []byte, samples []sampleRecord) *kgo.Record {
	sample := samples[f.written[kind]%len(samples)]
	f.written[kind]++
	return &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: sample.Value, Headers: sample.Headers}
}
