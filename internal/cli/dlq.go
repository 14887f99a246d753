package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
)

func newDLQ(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, and send them again",
		Long: `Records that a worker cannot take are dead letters: they go to the dead-letter topic (LATHE_TOPIC_DLQ) as they came,
with the reason in headers, in the transaction that passes over them. These commands list them, show one with what to do
about it, and produce them again once the cause is gone.

A dead letter is named <partition>/<offset>, its place in the dead-letter topic.`,
		Example: `  worker dlq list --since 24h
  worker dlq show 0/12
  worker dlq replay --reason unknown_agent         # the plan
  worker dlq replay --reason unknown_agent --yes   # does it`,
		Args: cobra.ArbitraryArgs,
		RunE: help,
	}
	cmd.AddCommand(newDLQList(env), newDLQShow(env), newDLQReplay(env))
	return cmd
}

// dlq is a command on the dead-letter topic under way.
type dlq struct {
	env      Env
	settings *app.Settings
	topic    string
	// turns is the topic that dead letters come from, partitions how many it has.
	turns       string
	partitions  int32
	partitioner consumer.Partitioner
	inspector   *consumer.Inspector
	adm         *kadm.Client
}

// openDLQ reaches the brokers and looks at the topics. Whoever gets it closes it.
func openDLQ(ctx context.Context, env Env) (*dlq, error) {
	s, err := loadSettings(ctx, env, true)
	if err != nil {
		return nil, err
	}
	registry, err := app.NewRegistry(s)
	if err != nil {
		return nil, refusedError{err}
	}
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return nil, refusedError{err}
	}
	d := &dlq{
		env: env, settings: s, topic: s.Topics().DLQ, turns: s.Topics().Turns,
		partitioner: consumer.Partitioner(s.Topic.TurnsPartitioner), adm: kadm.NewClient(cl),
	}
	found, err := d.adm.ListTopics(ctx, d.turns, d.topic)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("look up the topics %s and %s: %w", d.turns, d.topic, err)
	}
	for _, name := range []string{d.turns, d.topic} {
		err := found[name].Err
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			d.close()
			return nil, fmt.Errorf("topic %s does not exist: are LATHE_TOPIC_PREFIX and the topics' names set as the workers have them?", name)
		case err != nil:
			d.close()
			return nil, fmt.Errorf("look up the topic %s: %w", name, err)
		}
	}
	d.partitions = int32(len(found[d.turns].Partitions)) //nolint:gosec // Kafka counts in int32.
	d.inspector = consumer.NewInspector(consumer.Config{
		Turns: consumer.Topic{Name: d.turns, Partitions: d.partitions}, Partitioner: d.partitioner, MaxTurnBytes: int(s.Limits.RecordBytes),
	}, app.NewDecoder(s, registry))
	return d, nil
}

func (d *dlq) close() { d.adm.Close() }

// span is a part of one partition: the offsets from first to before end.
type span struct {
	partition  int32
	first, end int64
}

// spans are what the filter leaves of the topic, as it is now: what is committed later is not read. Partitions come in order.
func (d *dlq) spans(ctx context.Context, f *letterFilter) ([]span, error) {
	first, err := d.firstOffsets(ctx, f)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("look up where %s begins: %w", d.topic, err)
	}
	ends, err := d.adm.ListCommittedOffsets(ctx, d.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("look up where %s ends: %w", d.topic, err)
	}
	var out []span
	ends.Each(func(end kadm.ListedOffset) {
		if from, ok := first.Lookup(end.Topic, end.Partition); ok && from.Offset < end.Offset {
			out = append(out, span{end.Partition, from.Offset, end.Offset})
		}
	})
	slices.SortFunc(out, func(a, b span) int { return int(a.partition - b.partition) })
	return out, nil
}

func (d *dlq) firstOffsets(ctx context.Context, f *letterFilter) (kadm.ListedOffsets, error) {
	if f.from.IsZero() {
		return d.adm.ListStartOffsets(ctx, d.topic)
	}
	return d.adm.ListOffsetsAfterMilli(ctx, f.from.UnixMilli(), d.topic)
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// scan reads the spans one after another, committed records only, and visits each record. An error of visit ends it; errEnough
// is none.
func (d *dlq) scan(ctx context.Context, spans []span, visit func(*kgo.Record) error) error {
	for _, s := range spans {
		err := d.scanSpan(ctx, s, visit)
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dlq) scanSpan(ctx context.Context, s span, visit func(*kgo.Record) error) error {
	cl, err := clientConfig(d.settings).NewClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.topic: {s.partition: kgo.NewOffset().At(s.first)}}),
		// Control records show that the end is reached where nothing else does.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(250*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // Retention may delete the first of them meanwhile.
	)
	if err != nil {
		return refusedError{err}
	}
	defer cl.Close()
	for next := s.first; next < s.end; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := firstError(fetches); err != nil {
			return err
		}
		for _, rec := range fetches.Records() {
			if next = rec.Offset + 1; next > s.end {
				break
			}
			if rec.Attrs.IsControl() {
				continue
			}
			if err := visit(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// parsePlaces reads names of dead letters.
func parsePlaces(args []string) ([]span, error) {
	out := make([]span, 0, len(args))
	for _, arg := range args {
		var s span
		// What Sscanf reads written back must be what was given.
		if _, err := fmt.Sscanf(arg, "%d/%d", &s.partition, &s.first); err != nil || s.name() != strings.TrimSpace(arg) || s.partition < 0 || s.first < 0 {
			return nil, refusedError{fmt.Errorf("%q is not the name of a dead letter, <partition>/<offset> as `worker dlq list` prints it", arg)}
		}
		s.end = s.first + 1
		out = append(out, s)
	}
	return out, nil
}

func (s span) name() string { return fmt.Sprintf("%d/%d", s.partition, s.first) }

// at visits the dead letters of the names, in the order given, and fails for one that is not there.
func (d *dlq) at(ctx context.Context, places []span, visit func(*letter) error) error {
	known, err := d.spans(ctx, &letterFilter{})
	if err != nil {
		return err
	}
	for _, s := range places {
		if !slices.ContainsFunc(known, func(k span) bool { return k.partition == s.partition && k.first <= s.first && s.first < k.end }) {
			return fmt.Errorf("%s has no record %s (it holds%s)", d.topic, s.name(), describeSpans(known))
		}
		found := false
		err := d.scanSpan(ctx, s, func(rec *kgo.Record) error {
			found = true
			return visit(d.read(ctx, rec))
		})
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%s has no record %s: what stands there is the end of a transaction, or was aborted", d.topic, s.name())
		}
	}
	return nil
}

func describeSpans(known []span) string {
	if len(known) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, k := range known {
		say(&b, " %d/%d-%d", k.partition, k.first, k.end-1)
	}
	return b.String()
}
