package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// stuck makes a goroutine of the worker hang, whatever its context says, until the test is over.
type stuck struct {
	armed, met, release chan struct{}
	once                sync.Once
}

func newStuck(tb testing.TB) *stuck {
	tb.Helper()
	return &stuck{armed: make(chan struct{}), met: make(chan struct{}), release: make(chan struct{})}
}

func (s *stuck) arm() { close(s.armed) }

func (s *stuck) here() {
	select {
	case <-s.armed:
		s.once.Do(func() { close(s.met) })
		<-s.release
	default:
	}
}

// stuckDecoder hangs on the turn "stuck".
type stuckDecoder struct {
	Decoder

	at *stuck
}

func (d *stuckDecoder) Decode(ctx context.Context, value []byte, headers []schemas.Header) (*schemas.Decoded, error) {
	if strings.Contains(string(value), `"stuck"`) {
		d.at.here()
	}
	return d.Decoder.Decode(ctx, value, headers)
}

// stuckLog hangs where a message is logged.
type stuckLog struct {
	slog.Handler

	message string
	at      *stuck
}

func (l *stuckLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *stuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		l.at.here()
	}
	return nil
}

func (l *stuckLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *stuckLog) WithGroup(string) slog.Handler      { return l }

// TestWorker_LeavesAndEndsWhenItIsStuck makes each of the worker's goroutines hang for good. Heartbeats go on all the same; so the
// worker has to see it itself, says that it does not live, leaves the group although it is a static member, and ends with an error.
func TestWorker_LeavesAndEndsWhenItIsStuck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		setup func(s *setup, at *stuck)
		// provoke makes the goroutine come by where it hangs.
		provoke func(f *fake, p *process)
		want    error
	}{
		{
			name:    "the committer",
			setup:   func(s *setup, at *stuck) { s.deps.Hooks.BeforeSettle = func(context.Context) { at.here() } },
			provoke: func(f *fake, _ *process) { f.produce(turn(sessionOn(1, 1), "one")) },
			want:    errStalled,
		},
		{
			name:    "a dispatcher",
			setup:   func(s *setup, at *stuck) { s.deps.Decoder = &stuckDecoder{s.deps.Decoder, at} },
			provoke: func(f *fake, _ *process) { f.produce(turn(sessionOn(1, 1), "stuck"), turn(sessionOn(1, 1), "behind")) },
			want:    errWedged,
		},
		{
			name: "the poll goroutine",
			setup: func(s *setup, at *stuck) {
				s.deps.Logger = slog.New(&stuckLog{Handler: slog.DiscardHandler, message: "partition runs", at: at})
			},
			provoke: func(f *fake, p *process) { p.worker.askRejoin() },
			want:    errPollStuck,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				at := newStuck(f.t)
				static := with(func(c *Config) {
					c.InstanceID, c.SessionTimeout, c.Stall = "pod-0", 5*time.Minute, time.Minute
					c.HeartbeatInterval, c.FetchMaxWait = time.Second, 200*time.Millisecond
				})
				p := f.start(static, func(s *setup) { tc.setup(s, at) }).running(bedPartitions)
				at.arm()
				tc.provoke(f, p)
				<-at.met
				began := time.Now()
				<-p.ended
				took := time.Since(began)
				if !errors.Is(p.err, tc.want) || !errors.Is(p.err, ErrNoProgress) || took > 3*time.Minute {
					f.t.Errorf("ended after %s with %v, want %v", took, p.err, tc.want)
				}
				if s := p.worker.Status(); s.Live || s.Ready {
					f.t.Errorf("live %t, ready %t", s.Live, s.Ready)
				}
				f.wantNoMembers()
				close(at.release)
				second := f.start().running(bedPartitions)
				f.load(20, 4)
				f.handled()
				second.end()
			})
		})
	}
}

func (b *bed) wantNoMembers() {
	b.t.Helper()
	groups, err := b.admin.DescribeGroups(b.t.Context(), b.name)
	must(b.t, err)
	if members := groups[b.name].Members; len(members) > 0 {
		b.t.Errorf("the group still has %d members: %v", len(members), groups)
	}
}

// TestWorker_IsNotStuckWhileItWaits keeps records waiting for long behind what may take long: a turn, a registry that is down.
func TestWorker_IsNotStuckWhileItWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		h := &holder{release: make(chan struct{})}
		p := f.start(handling(h.echo()), with(func(c *Config) {
			c.Window, c.Stall, c.HeartbeatInterval, c.FetchMaxWait = 1, time.Minute, time.Second, time.Second
		}), func(s *setup) {
			s.deps.Decoder = &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), until: time.Now().Add(12 * time.Minute)}
		}).running(bedPartitions)
		f.produce(turn(sessionOn(0, 1), "hold-1"), turn(sessionOn(0, 2), "behind-1"), turn(sessionOn(0, 3), "behind-2"))
		f.produce(turn(sessionOn(1, 1), "needs-registry"), turn(sessionOn(1, 1), "behind-3"))
		<-time.After(10 * time.Minute)
		if s := p.worker.Status(); !s.Live || !s.Ready {
			f.t.Fatalf("live %t (%s), ready %t (%s)", s.Live, s.LiveReason, s.Ready, s.ReadyReason)
		}
		close(h.release)
		<-time.After(5 * time.Minute)
		f.handled()
		p.end()
	})
}

// TestWorker_ForgivesItselfTheTimeItWasStopped tells of a worker that was stopped (SIGSTOP, a moved machine) for longer than what
// counts as stuck, in the middle of a cycle: it must not end for that, but learn what has become of it.
func TestWorker_ForgivesItselfTheTimeItWasStopped(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		long := time.Now().Add(-time.Hour).UnixNano()
		p.worker.beat.Store(long)
		p.worker.committer.since.Store(long)
		if p.worker.overdue() == nil {
			f.t.Fatal("a worker that did nothing for an hour is not stuck")
		}
		p.worker.forgive(time.Now())
		if err := p.worker.overdue(); err != nil {
			f.t.Errorf("after it was stopped: %v", err)
		}
		p.worker.committer.since.Store(0)
		p.end()
	})
}
