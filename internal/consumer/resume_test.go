package consumer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// logbook keeps what a worker says.
type logbook struct {
	slog.Handler

	mu    *sync.Mutex
	lines *[]logLine
}

type logLine struct {
	message string
	attrs   map[string]slog.Value
}

func newLogbook() logbook {
	return logbook{Handler: slog.DiscardHandler, mu: &sync.Mutex{}, lines: &[]logLine{}}
}

func (b logbook) Enabled(context.Context, slog.Level) bool { return true }

func (b logbook) Handle(_ context.Context, r slog.Record) error {
	l := logLine{message: r.Message, attrs: map[string]slog.Value{}}
	r.Attrs(func(a slog.Attr) bool {
		l.attrs[a.Key] = a.Value
		if a.Value.Kind() == slog.KindGroup {
			for _, g := range a.Value.Group() {
				l.attrs[a.Key+"."+g.Key] = g.Value
			}
		}
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.lines = append(*b.lines, l)
	return nil
}

func (b logbook) WithAttrs([]slog.Attr) slog.Handler { return b }

func (b logbook) into(s *setup) { s.deps.Logger = slog.New(b) }

// with returns the lines of a message.
func (b logbook) with(message string) []logLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []logLine
	for _, l := range *b.lines {
		if l.message == message {
			out = append(out, l)
		}
	}
	return out
}

// restores are the lines about finished restores, the last of each partition.
func (b logbook) restores() map[int32]logLine {
	out := map[int32]logLine{}
	for _, l := range b.with("partition is restored") {
		out[int32(l.attrs["partition.id"].Int64())] = l
	}
	return out
}

// TestWorker_TrustsItsDiskOnlyWhenCertain gives a worker the disk of an earlier one, under conditions that make it stale, and looks
// at what it says about it.
func TestWorker_TrustsItsDiskOnlyWhenCertain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// why is why the disk is not trusted; empty when it is.
		why string
		// position changes what the disk says, cluster and setup what the worker meets.
		position func(p *statestore.Position)
		cluster  func(f *fake)
		setup    func(s *setup)
	}{
		{name: "nothing has changed"},
		{name: "clocks differ a little", position: func(p *statestore.Position) { p.At = p.At.Add(3 * time.Hour) }},
		{
			name: "it is of another topic", why: "the local state is of another changelog topic",
			position: func(p *statestore.Position) { p.ChangelogID[3] ^= 1 },
		},
		{
			name: "the changelog begins behind it", why: "the changelog begins after the local state ends",
			position: func(p *statestore.Position) { p.ChangelogNext = 1 },
			cluster: func(f *fake) {
				cut := kadm.Offsets{f.changelog.Name: {}}
				for id := range int32(bedPartitions) {
					cut[f.changelog.Name][id] = kadm.Offset{Topic: f.changelog.Name, Partition: id, At: 2}
				}
				_, err := f.admin.DeleteRecords(f.t.Context(), cut)
				must(f.t, err)
			},
		},
		{
			name: "it is ahead of the changelog", why: "the local state is ahead of the changelog",
			position: func(p *statestore.Position) { p.ChangelogNext += 1000 },
		},
		{
			name: "it is older than tombstones are kept", why: "the local state is older than tombstones are kept",
			setup: func(s *setup) { s.cfg.ChangelogDeleteRetention = time.Hour },
		},
		{
			name: "it is from the future", why: "the local state is from the future, so that its age is not known",
			position: func(p *statestore.Position) { p.At = p.At.AddDate(1, 0, 0) },
		},
		{
			name: "its leader epoch is not known", why: "the leader epoch of the local state is not known",
			position: func(p *statestore.Position) { p.LeaderEpoch = -1 },
		},
		{name: "the changelog was cut below it", why: "the changelog was cut below the local state", cluster: epochEndsAtOne},
		{
			name: "it is ahead of the group", why: "the local state is ahead of the group",
			cluster: func(f *fake) {
				back := kadm.Offsets{f.turns.Name: {}}
				for id, o := range f.committed() {
					o.At--
					back[f.turns.Name][id] = o
				}
				must(f.t, f.admin.CommitAllOffsets(f.t.Context(), f.name, back))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				fs, said := vfs.NewMem(), newLogbook()
				first := f.start(onDisk(fs)).running(bedPartitions)
				f.load(80, 8)
				f.handled()
				first.drain()
				<-time.After(2 * time.Hour)
				if tc.cluster != nil {
					tc.cluster(f)
				}
				if tc.position != nil {
					changePositions(f, fs, tc.position)
				}
				second := f.start(onDisk(fs), said.into, func(s *setup) {
					if tc.setup != nil {
						tc.setup(s)
					}
				}).running(bedPartitions)
				want := fromLocal
				if tc.why != "" {
					want = readFromStart(tc.why)
				}
				lines := said.restores()
				if len(lines) != bedPartitions {
					f.t.Errorf("%d lines about restores, want %d", len(lines), bedPartitions)
				}
				for id, l := range lines {
					records, bytes := l.attrs["records"].Int64(), l.attrs["bytes"].Int64()
					if how := l.attrs["how"].String(); how != want || (records > 0) != (tc.why != "") || (bytes > 0) != (records > 0) {
						f.t.Errorf("partition %d: %q with %d records and %d bytes, want %q", id, how, records, bytes, want)
					}
				}
				f.load(80, 8)
				f.handled()
				if tc.name != "it is ahead of the group" && tc.name != "the changelog begins behind it" {
					f.exactlyOnce(8)
					second.end()
					second.stateIsTheChangelog()
				}
			})
		})
	}
}

// epochEndsAtOne makes the brokers say that every epoch of the changelog ends at offset 1, as after an unclean election.
func epochEndsAtOne(f *fake) {
	f.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		if r.Topics[0].Topic != f.changelog.Name {
			return nil, nil, false //nolint:nilnil // The broker answers.
		}
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = f.changelog.Name
		rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rp.Partition, rp.EndOffset = r.Topics[0].Partitions[0].Partition, 1
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
}

// changePositions rewrites the positions on a disk that nobody uses.
func changePositions(f *fake, fs vfs.FS, change func(p *statestore.Position)) {
	f.t.Helper()
	store, err := statestore.Open(statestore.Config{Dir: "state", FS: fs})
	must(f.t, err)
	for id := range int32(bedPartitions) {
		pos, found, err := store.Position(id)
		must(f.t, err)
		if !found {
			f.t.Fatalf("partition %d has no position", id)
		}
		change(&pos)
		must(f.t, store.Restore(id, nil, pos))
	}
	must(f.t, store.Close())
}

// steps are where a worker is killed: around each step of a cycle, wherever its hooks are.
func steps() map[string]func(h *Hooks, at func(context.Context)) {
	out := map[string]func(h *Hooks, at func(context.Context)){
		"before take":   func(h *Hooks, at func(context.Context)) { h.BeforeTake = at },
		"before settle": func(h *Hooks, at func(context.Context)) { h.BeforeSettle = at },
		"after settle":  func(h *Hooks, at func(context.Context)) { h.AfterSettle = at },
	}
	for _, s := range []txn.Step{txn.StepBegin, txn.StepAnnounce, txn.StepProduce, txn.StepFlush, txn.StepOffsets, txn.StepCheck, txn.StepEnd} {
		out["before "+s.String()] = func(h *Hooks, at func(context.Context)) {
			h.Txn.Before = func(ctx context.Context, now txn.Step) {
				if now == s {
					at(ctx)
				}
			}
		}
		out["after "+s.String()] = func(h *Hooks, at func(context.Context)) {
			h.Txn.After = func(ctx context.Context, now txn.Step) {
				if now == s {
					at(ctx)
				}
			}
		}
	}
	return out
}

// TestWorker_KilledAtAnyStepReadsOnlyTheTail takes the disk as a crash leaves it at each step of a cycle, what was not synced lost
// at random, and gives it to the next worker: it trusts it, and says that it has read the tail and how long that was.
func TestWorker_KilledAtAnyStepReadsOnlyTheTail(t *testing.T) {
	t.Parallel()
	for name, install := range steps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				fs, said := vfs.NewCrashableMem(), newLogbook()
				rnd := rand.New(rand.NewPCG(1, 2))
				var armed atomic.Bool
				crashed := make(chan *vfs.MemFS, 1)
				first := f.start(onDisk(fs), func(s *setup) {
					install(&s.deps.Hooks, func(ctx context.Context) {
						if armed.CompareAndSwap(true, false) {
							crashed <- fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
							<-ctx.Done()
						}
					})
				}).running(bedPartitions)
				f.load(200, 16)
				f.handled()
				<-time.After(2 * watchInterval) // By then the disk is synced.
				armed.Store(true)
				f.load(40, 16)
				disk := <-crashed
				first.kill()
				second := f.start(onDisk(disk), said.into).running(bedPartitions)
				total := int64(0)
				for id, l := range said.restores() {
					total += l.attrs["records"].Int64()
					if how := l.attrs["how"].String(); how != fromLocal {
						f.t.Errorf("partition %d: %s", id, how)
					}
				}
				if total > 40*4 {
					f.t.Errorf("%d records were read for at most 40 turns", total)
				}
				f.handled()
				f.exactlyOnce(16)
				second.end()
				second.stateIsTheChangelog()
			})
		})
	}
}

// TestWorker_KilledAfterAChangelogLeaderMovedKeepsItsDisk: the position is only as good as the leader epoch beside it. Were that the
// one of the last look at the leaders, half a minute old, the records of the new leader would look cut off.
func TestWorker_KilledAfterAChangelogLeaderMovedKeepsItsDisk(t *testing.T) {
	t.Parallel()
	bubbleOf(t, 3, func(f *fake) {
		fs, said := vfs.NewMem(), newLogbook()
		first := f.start(onDisk(fs)).running(bedPartitions)
		f.load(80, 8)
		f.handled()
		<-time.After(leaderInterval + time.Second)
		for id := range int32(bedPartitions) {
			was := f.cluster.LeaderFor(f.changelog.Name, id)
			must(f.t, f.cluster.MoveTopicPartition(f.changelog.Name, id, (was+1)%3))
		}
		f.load(80, 8)
		f.handled()
		<-time.After(2 * watchInterval)
		first.kill()
		second := f.start(onDisk(fs), said.into).running(bedPartitions)
		for id, l := range said.restores() {
			if how := l.attrs["how"].String(); how != fromLocal {
				f.t.Errorf("partition %d: %s", id, how)
			}
		}
		f.exactlyOnce(8)
		second.end()
	})
}
