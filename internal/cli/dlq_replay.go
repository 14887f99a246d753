package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/schemas"
)

// replayFlags say which dead letters are sent again, and how.
type replayFlags struct {
	letterFilter

	yes, dryRun, force, rekey, asJSON bool
}

func newDLQReplay(env Env) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [<partition>/<offset>...]",
		Short: "Send dead letters again, once their cause is gone",
		Long: `Produces dead letters again to the turns topic: the record as it came, key, value and headers, on the partition where
its key belongs, with one more header (` + consumer.HeaderReplayedFrom + `) that says where it comes from. That is not part of
the payload hash, so it is the same turn: replaying twice is harmless, a turn that was taken already gives no event and
runs nothing (within LATHE_DEDUPE_RETENTION). The dead letter itself stays where it is.

Chosen by name, dead letters are sent at once. Chosen by filters, or not at all, they are only listed as a plan, until you
add --yes. --dry-run always only plans.

What a worker would refuse again as things are is not sent: what does not decode, has a wrong key (--rekey sends it under
its session_id instead), is too large, or is a conflict. --force sends it all the same, and the worker decides. What is not
whole, has no value, or has no key is never sent. A dead letter that was replayed before, and refused again, is passed over
for the sake of its last refusal. The rest goes on in each case. The settings here should be those of the workers: their
partitioner, limits and registry count.

Exit status 0 says that all that were chosen were sent, or only planned; 1 that some were not.`,
		Example: `  worker dlq replay --reason unknown_agent --since 2d          # the plan
  worker dlq replay --reason unknown_agent --since 2d --yes    # does it
  worker dlq replay 0/12 3/0 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			places, err := parsePlaces(args)
			if err != nil {
				return err
			}
			switch {
			case len(places) > 0 && f.isSet():
				return refusedError{errors.New("choose dead letters by name or by filters, not both")}
			case f.yes && f.dryRun:
				return refusedError{errors.New("--yes sends and --dry-run does not: give one of them")}
			}
			if err := f.resolve(time.Now()); err != nil {
				return err
			}
			ctx, _, release := signals(cmd.Context())
			defer release()
			d, err := openDLQ(ctx, env)
			if err != nil {
				return err
			}
			defer d.close()
			return d.replay(ctx, &f, places)
		},
	}
	f.flags(cmd.Flags())
	fl := cmd.Flags()
	fl.BoolVarP(&f.yes, "yes", "y", false, "send what the filters choose")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only say what would be sent")
	fl.BoolVar(&f.force, "force", false, "send also what a worker would refuse again as things are")
	fl.BoolVar(&f.rekey, "rekey", false, "send records with a wrong key, or none, under their session_id")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON lines")
	return cmd
}

// replay is one run of the command.
type replay struct {
	*dlq

	flags *replayFlags
	send  bool
	// cl is nil when nothing is sent.
	cl *kgo.Client
	// again has the names of dead letters that were replayed and refused again.
	again map[string]bool

	// mu guards what is printed and counted: promises come from the producer's goroutines.
	mu     sync.Mutex
	p      *progress
	counts map[outcome]int
}

func (r *replay) step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.p.step()
}

// outcome is what became of a dead letter that was chosen.
type outcome string

const (
	outcomePlanned outcome = "would be sent"
	outcomeSent    outcome = "sent"
	outcomeRefused outcome = "not sent"
	outcomePassed  outcome = "passed over"
	outcomeFailed  outcome = "failed"
)

func (d *dlq) replay(ctx context.Context, f *replayFlags, places []span) error {
	r := &replay{
		dlq: d, flags: f, send: f.yes || len(places) > 0 && !f.dryRun,
		p: newProgress(d.env.Stderr, "read", "dead letters"), again: make(map[string]bool), counts: make(map[outcome]int),
	}
	if r.send {
		if err := r.open(ctx); err != nil {
			return err
		}
		defer r.cl.Close()
	}
	err := r.run(ctx, places)
	if r.send {
		// What was begun is ended, whatever stopped the scan; ctx may be over.
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		err = errors.Join(err, r.cl.Flush(flush))
	}
	return errors.Join(err, r.summary(places))
}

const flushTime = 30 * time.Second

// open makes the producer. What a record may hold is the topic's to say.
func (r *replay) open(ctx context.Context) error {
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks())}
	if n := r.maxMessageBytes(ctx); n > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(n))
	}
	cl, err := clientConfig(r.settings).NewClient(opts...)
	if err != nil {
		return refusedError{err}
	}
	r.cl = cl
	return nil
}

// maxMessageBytes is the limit of the turns topic, or 0 when the brokers do not tell: then the client's default must do.
func (r *replay) maxMessageBytes(ctx context.Context) int32 {
	configs, err := r.adm.DescribeTopicConfigs(ctx, r.turns)
	if err != nil {
		return 0
	}
	config, err := configs.On(r.turns, nil)
	if err != nil || config.Err != nil {
		return 0
	}
	for _, c := range config.Configs {
		if c.Key == "max.message.bytes" {
			if n, err := strconv.ParseInt(c.MaybeValue(), 10, 32); err == nil {
				return int32(n)
			}
		}
	}
	return 0
}

func (r *replay) run(ctx context.Context, places []span) error {
	if len(places) > 0 {
		return r.at(ctx, places, func(l *letter) error { return r.one(ctx, l) })
	}
	f := &r.flags.letterFilter
	spans, err := r.spans(ctx, f)
	if err != nil {
		return err
	}
	if err := r.findAgain(ctx, spans); err != nil {
		return err
	}
	n := 0
	return r.scan(ctx, f.narrow(spans), func(rec *kgo.Record) error {
		r.step()
		l := r.read(ctx, rec)
		if !f.wants(l) {
			return nil
		}
		if err := r.one(ctx, l); err != nil {
			return err
		}
		if n++; n == f.limit {
			return errEnough
		}
		return nil
	})
}

// findAgain finds the dead letters that were replayed and refused again. Without it each replay of what stays bad would double it.
// A later refusal is never older than the one it came from, so it is within the spans, if perhaps not chosen itself.
func (r *replay) findAgain(ctx context.Context, spans []span) error {
	defer func() { r.p.n = 0 }() // The second pass reads them once more.
	return r.scan(ctx, spans, func(rec *kgo.Record) error {
		r.step()
		if dead, ours := consumer.ReadDeadLetter(rec); ours && dead.ReplayedFrom != "" {
			r.again[dead.ReplayedFrom] = true
		}
		return nil
	})
}

// one decides about one dead letter, and sends it if it is to be sent.
func (r *replay) one(ctx context.Context, l *letter) error {
	rec, why := r.judge(ctx, l)
	switch {
	case r.again[r.topic+"/"+l.name()]:
		r.report(l, outcomePassed, nil, "it was replayed, and refused again later")
	case why != "":
		r.report(l, outcomeRefused, nil, why)
	case !r.send:
		r.report(l, outcomePlanned, rec, "")
	default:
		r.cl.Produce(ctx, rec, func(rec *kgo.Record, err error) {
			if err != nil {
				r.report(l, outcomeFailed, nil, err.Error())
				return
			}
			r.report(l, outcomeSent, rec, "")
		})
	}
	return context.Cause(ctx)
}

// judge makes the record to send, or says why it is not sent.
func (r *replay) judge(ctx context.Context, l *letter) (rec *kgo.Record, why string) {
	switch {
	case !l.ours:
		return nil, "no worker wrote it, so where it came from is not known"
	case l.dead.Cut:
		return nil, fmt.Sprintf("its value is not whole: %d of %d bytes are here", len(l.rec.Value), l.dead.ValueBytes)
	case l.rec.Value == nil:
		return nil, "it has no value"
	}
	key := l.rec.Key
	if r.flags.rekey && l.event != nil {
		key = []byte(l.event.SessionID)
	}
	if key == nil {
		return nil, "it has no key, so where it belongs is not known" + rekeyHint(l)
	}
	if why := r.refusedAgain(ctx, l, key); why != "" && !r.flags.force {
		return nil, why
	}
	return &kgo.Record{
		Topic: r.turns, Partition: r.place(l, key), Key: key, Value: l.rec.Value,
		Headers: append(consumer.WithoutReplay(l.dead.Headers), kgo.RecordHeader{
			Key: consumer.HeaderReplayedFrom, Value: []byte(r.topic + "/" + l.name()),
		}),
	}, ""
}

// refusedAgain says why a worker would refuse the record as things are, as far as that can be told without knowing its turns and
// agents.
func (r *replay) refusedAgain(ctx context.Context, l *letter, key []byte) string {
	_, reason := r.inspect(ctx, l, key)
	switch {
	case reason != nil && reason.Class == schemas.ClassRetryable:
		return "whether it can be decoded is not known: " + reason.Error()
	case reason != nil && reason.Code == schemas.CodeKeyMismatch:
		return "a worker would refuse it again, " + string(reason.Code) + ": " + reason.Detail() + rekeyHint(l)
	case reason != nil:
		return "a worker would refuse it again, " + string(reason.Code) + ": " + reason.Detail()
	case l.dead.Reason == schemas.CodeConflict:
		return "a worker would refuse it again, conflict: its turn_id is taken by a turn with another content"
	}
	return ""
}

func rekeyHint(l *letter) string {
	if l.event == nil {
		return ""
	}
	return "; --rekey sends it under its session_id"
}
