package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/schemas"
)

// submitFlags are what the command line says about turns to send.
type submitFlags struct {
	message, agent, session, turn, encoding string
	wait, asJSON                            bool
	timeout                                 time.Duration
}

func newSubmit(_ app.Program, env Env) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit [file]",
		Short: "Send turn events, and wait for their end if you like",
		Long: `Sends turn events to the turns topic, keyed by session and partitioned as workers expect. Events are JSON, one or
many, from a file or from standard input ("-" or nothing); --message makes one without writing JSON. They are written
in LATHE_ENCODING_TURNS, or what --encoding says.

--wait prints the events of these turns until each has ended. Exit status 0 says that all completed, 1 that one did not.`,
		Example: `  worker submit --message "Where is order 1001?" --wait
  echo '{"turn_id":"t-1","session_id":"s-1","messages":[{"role":"user","content":"hi"}]}' | worker submit --wait
  worker submit turns.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			events, err := f.events(args, env.Stdin)
			if err != nil {
				return refusedError{err}
			}
			return submit(cmd.Context(), env, f, events)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.message, "message", "m", "", "text of a user message; makes one turn event")
	fl.StringVar(&f.agent, "agent", "", "agent of --message; may be left out when the manifest has only one")
	fl.StringVar(&f.session, "session", "", "session of --message (default: none, and no later turn knows of it)")
	fl.StringVar(&f.turn, "turn", "", "turn id of --message (default: a random one)")
	fl.StringVar(&f.encoding, "encoding", "", "json, avro or avro-single (default: LATHE_ENCODING_TURNS)")
	fl.BoolVarP(&f.wait, "wait", "w", false, "print the turns' events until each has ended")
	fl.BoolVar(&f.asJSON, "json", false, "with --wait: print events as JSON lines")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Minute, "with --wait: how long to wait")
	return cmd
}

// events are the turn events that flags, a file or standard input give.
func (f submitFlags) events(args []string, stdin io.Reader) ([]*schemas.TurnEvent, error) {
	if f.message != "" {
		if len(args) > 0 {
			return nil, errors.New("give --message or a file, not both")
		}
		ev := &schemas.TurnEvent{TurnID: f.turn, SessionID: f.session, Agent: f.agent, Messages: []schemas.Message{{Role: "user", Text: f.message}}}
		if ev.TurnID == "" {
			ev.TurnID = "turn-" + rand.Text()
		}
		return []*schemas.TurnEvent{ev}, nil
	}
	in := stdin
	if len(args) == 1 && args[0] != "-" {
		b, err := os.ReadFile(args[0])
		if err != nil {
			return nil, fmt.Errorf("read the turn events: %w", err)
		}
		in = bytes.NewReader(b)
	}
	return readEvents(in)
}

func readEvents(in io.Reader) ([]*schemas.TurnEvent, error) {
	var out []*schemas.TurnEvent
	dec := json.NewDecoder(bufio.NewReader(in))
	for {
		ev := &schemas.TurnEvent{}
		err := dec.Decode(ev)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read turn event %d: %w", len(out)+1, err)
		}
		if ev.TurnID == "" {
			return nil, fmt.Errorf("read turn event %d: it has no turn_id", len(out)+1)
		}
		out = append(out, ev)
	}
	if len(out) == 0 {
		return nil, errors.New("no turn event is given: write one to standard input, name a file, or use --message")
	}
	return out, nil
}

// submit sends the events and, if asked, follows them to their end.
func submit(ctx context.Context, env Env, f submitFlags, events []*schemas.TurnEvent) error {
	s, err := loadSettings(ctx, env, true)
	if err != nil {
		return err
	}
	registry, err := app.NewRegistry(s)
	if err != nil {
		return refusedError{err}
	}
	enc := s.Encoding.Resolved().Turns
	if f.encoding != "" {
		enc = schemas.Encoding(f.encoding)
	}
	opts, err := app.EncoderOptions(ctx, s, registry, s.Topics().Turns, enc, schemas.RecordTurnEvent)
	if err != nil {
		return refusedError{err}
	}
	encoder, err := schemas.NewTurnEncoder(enc, opts)
	if err != nil {
		return refusedError{err}
	}
	var follow *reader
	if f.wait {
		if follow, err = openReader(ctx, s, registry, readerOptions{fromEnd: true}); err != nil {
			return err
		}
		defer follow.close()
	}
	if err := send(ctx, s, encoder, events); err != nil {
		return err
	}
	if !f.wait {
		for _, ev := range events {
			say(env.Stdout, "%s\n", ev.TurnID)
		}
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the turns have not ended within %s", f.timeout))
	defer cancel()
	return waitFor(ctx, follow, newPrinter(env.Stdout, f.asJSON), events)
}

// send writes the events, idempotently, and returns when all are acknowledged.
func send(ctx context.Context, s *app.Settings, encoder *schemas.TurnEncoder, events []*schemas.TurnEvent) error {
	cl, err := clientConfig(s).NewClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(turnsPartitioner(s)))
	if err != nil {
		return refusedError{err}
	}
	defer cl.Close()
	recs := make([]*kgo.Record, len(events))
	for i, ev := range events {
		value, err := encoder.Encode(ev)
		if err != nil {
			return refusedError{fmt.Errorf("encode turn %s: %w", ev.TurnID, err)}
		}
		key := ev.SessionID
		if key == "" {
			key = ev.TurnID
		}
		recs[i] = &kgo.Record{Topic: s.Topics().Turns, Key: []byte(key), Value: value}
		for _, h := range encoder.Headers() {
			recs[i].Headers = append(recs[i].Headers, kgo.RecordHeader(h))
		}
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return fmt.Errorf("send to %s: %w", s.Topics().Turns, err)
	}
	return nil
}

// turnsPartitioner puts turns where the workers expect them. Where only producers know, it does as Java's and franz-go's do.
func turnsPartitioner(s *app.Settings) kgo.Partitioner {
	p := consumer.Partitioner(s.Topic.TurnsPartitioner)
	return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, n int) int {
			to, known := p.Place(r.Key, int32(n)) //nolint:gosec // Kafka counts in int32.
			if !known {
				to, _ = consumer.PartitionerMurmur2.Place(r.Key, int32(n)) //nolint:gosec // As above.
			}
			return int(to)
		}
	})
}

// clientConfig reaches the brokers for a command; what the client has to say is not shown.
func clientConfig(s *app.Settings) kafka.Config {
	return app.KafkaConfig(s, "", slog.New(slog.DiscardHandler))
}

// waitFor prints events until each turn has ended or was refused.
func waitFor(ctx context.Context, r *reader, p *printer, events []*schemas.TurnEvent) error {
	open := make(map[string]bool, len(events))
	for _, ev := range events {
		if ev.Type != schemas.InputCancel {
			open[ev.TurnID] = true
		}
	}
	wanted := func(turnID string) bool { _, ok := open[turnID]; return ok }
	var failed []string
	left := len(open)
	for left > 0 {
		got, err := r.next(ctx, wanted)
		if err != nil {
			return err
		}
		for _, ev := range got {
			p.print(ev)
			if ended, ok := endOf(ev); ok && open[ev.env.TurnID] {
				open[ev.env.TurnID] = false
				left--
				if ended != schemas.StatusCompleted {
					failed = append(failed, ev.env.TurnID+" "+ended)
				}
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not completed: %v", failed)
	}
	return nil
}

// endOf is the status that an event ends its turn with.
func endOf(ev event) (string, bool) {
	switch ev.env.Type {
	case schemas.TypeTurnEnd:
		return ev.Turn.Status, true
	case schemas.TypeTurnRejected:
		return "rejected (" + string(ev.Turn.Code) + ")", true
	}
	return "", false
}
