package torture

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/world"
)

// Run tortures one deployment with one seed and judges it. The work folder is deleted unless something was found.
func Run(ctx context.Context, cfg Config, brokers Brokers, out io.Writer) (*Summary, error) {
	s, found, err := Judge(ctx, cfg, brokers, out)
	_ = found // They were printed.
	return s, err
}

// Judge is Run that gives the violations too.
func Judge(ctx context.Context, cfg Config, brokers Brokers, out io.Writer) (*Summary, []oracle.Violation, error) {
	cfg = cfg.withDefaults()
	b, err := newBed(ctx, cfg, brokers, out)
	if err != nil {
		return nil, nil, err
	}
	b.log.line("seed %d: %d workers, %s, attacks for %s; work folder %s", cfg.Seed, cfg.Workers, cfg.Protocol, cfg.Attack, b.dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.reader, b.watch = newReader(b), newWatcher(b)
	defer b.close()
	if err := b.ready(ctx); err != nil {
		return nil, nil, err
	}
	e, err := b.torture(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (work folder %s)", err, b.dir)
	}
	found := append(b.log.found(), e.Check()...)
	b.verdict(found)
	if len(found) == 0 && !cfg.Keep {
		_ = os.RemoveAll(b.dir) // What is left of it is in nobody's way.
	}
	return b.summary(e, found), found, nil
}

// ready starts the workers and waits until one has made the topics.
func (b *Bed) ready(ctx context.Context) error {
	if err := b.Fleet.start(ctx); err != nil {
		return err
	}
	err := until(ctx, time.Minute, func() bool {
		ends, err := b.adm.ListEndOffsets(ctx, b.reader.topics()...)
		return err == nil && ends.Error() == nil && len(ends) == len(b.reader.topics())
	})
	if err != nil {
		return fmt.Errorf("wait for the workers to make their topics: %w", err)
	}
	return nil
}

// torture runs the load and the attacks, waits until all is done, stops the workers, and gathers the evidence.
func (b *Bed) torture(ctx context.Context) (*oracle.Evidence, error) {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	all, watching := errgroup.WithContext(watching)
	all.Go(func() error { return b.reader.run(watching) })
	all.Go(func() error { b.watch.run(watching); return nil })
	e, err := b.besiege(watching)
	stopWatching()
	if other := all.Wait(); other != nil {
		return nil, other
	}
	return e, err
}

func (b *Bed) besiege(ctx context.Context) (*oracle.Evidence, error) {
	attacking, stop := context.WithTimeout(ctx, b.cfg.Attack)
	defer stop()
	siege, siegeCtx := errgroup.WithContext(attacking)
	siege.Go(func() error { b.load.run(siegeCtx); return nil })
	for _, on := range []Target{OnWorkers, OnBrokers} {
		siege.Go(func() error { return b.assault(siegeCtx, on) })
	}
	if err := siege.Wait(); err != nil {
		return nil, err
	}
	if err := b.Fleet.up(); err != nil {
		return nil, err
	}
	if err := b.load.flush(ctx, b.cfg.Bound); err != nil {
		return nil, err
	}
	b.log.line("the attacks are over; %d turns sent, %d ended; the rest has %s", b.load.turns(), b.reader.ended(), b.cfg.Bound)
	e := &oracle.Evidence{Topic: b.Topic("turns")}
	began := time.Now()
	if err := b.finish(ctx); err != nil {
		e.Late = time.Since(began).Round(time.Second)
		b.describe(ctx)
	} else {
		b.log.line("all was done %s after the last attack", time.Since(began).Round(time.Millisecond))
	}
	b.stopAll()
	return e, b.gather(ctx, e)
}

// finish waits until all that was sent is done, sends some of it again, and waits once more.
func (b *Bed) finish(ctx context.Context) error {
	if err := until(ctx, b.cfg.Bound, func() bool { return b.done(ctx) }); err != nil {
		return err
	}
	const repeats = 50
	b.load.again(ctx, repeats)
	if err := b.load.flush(ctx, b.cfg.Bound); err != nil {
		return err
	}
	return until(ctx, b.cfg.Bound, func() bool { return b.done(ctx) })
}

// done reports whether the group has committed all that was sent.
func (b *Bed) done(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	ends, err := b.adm.ListEndOffsets(ctx, b.Topic("turns"))
	if err != nil || ends.Error() != nil {
		return false
	}
	committed, err := b.adm.FetchOffsets(kadm.RequireStable(ctx), b.app)
	if err != nil || !committed.Ok() {
		return false
	}
	done := true
	ends.Each(func(o kadm.ListedOffset) {
		c, ok := committed.Lookup(o.Topic, o.Partition)
		done = done && (o.Offset == 0 || ok && c.At == o.Offset)
	})
	return done
}

// describe says what holds the workers back.
func (b *Bed) describe(ctx context.Context) {
	for _, p := range b.Fleet.live() {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		status, body := p.Probe(ctx, "/readyz?verbose")
		cancel()
		b.log.line("worker %s is not done: %d %s", p.Name, status, strings.Join(strings.Fields(body), " "))
	}
}

// stopAll asks all workers to stop, at the same time.
func (b *Bed) stopAll() {
	b.log.line("all workers are asked to stop")
	var wg sync.WaitGroup
	for _, m := range b.Fleet.Members {
		wg.Go(m.Stop)
	}
	wg.Wait()
	b.Fleet.wg.Wait()
}

// gather reads the rest of the evidence.
func (b *Bed) gather(ctx context.Context, e *oracle.Evidence) error {
	if err := until(ctx, b.cfg.Bound, func() bool { return b.reader.atEnd(ctx) }); err != nil {
		return fmt.Errorf("read all that was written: %w", err)
	}
	b.load.tell(e)
	b.reader.tell(e)
	b.watch.tell(e)
	var err error
	if e.Ledger, err = world.ReadLedger(b.dir); err != nil {
		return err
	}
	e.Committed, e.Ends = make(map[int32]oracle.Offset), make(map[int32]int64)
	ends, err := b.adm.ListEndOffsets(ctx, b.Topic("turns"))
	if err != nil {
		return fmt.Errorf("list the ends of the turns: %w", err)
	}
	ends.Each(func(o kadm.ListedOffset) { e.Ends[o.Partition] = o.Offset })
	committed, err := b.adm.FetchOffsets(kadm.RequireStable(ctx), b.app)
	if err != nil {
		return fmt.Errorf("fetch the committed offsets: %w", err)
	}
	committed.Each(func(o kadm.OffsetResponse) {
		m, ok := txn.ParseMetadata(o.Metadata)
		e.Committed[o.Partition] = oracle.Offset{At: o.At, Clean: ok && m.Clean || b.troubled() || b.reset(o), Metadata: o.Metadata}
	})
	b.locals(e)
	b.wiped(e)
	b.grace(e)
	return nil
}

// reset reports whether an operator has set the offset, and no worker has committed it since.
func (b *Bed) reset(o kadm.OffsetResponse) bool {
	return o.Metadata == "" && slices.Contains(b.cfg.Attacks, "changelog_cut")
}

// locals reads the state on the workers' disks. What an attack has damaged and no worker has read since cannot be read here either;
// that is no broken promise, since it is not wrong without a sign.
func (b *Bed) locals(e *oracle.Evidence) {
	for _, m := range b.Fleet.Members {
		local, err := oracle.ReadLocal(m.Name, m.Data(), turnPartitions)
		switch {
		case err == nil:
			e.Local = append(e.Local, local...)
		case m.spoilt():
			b.log.line("the disk of %s is still damaged: %v", m.Name, err)
		default:
			b.log.violation(oracle.State, "the local state of %s cannot be read: %v", m.Name, err)
		}
	}
}

// grace: workers that were only asked to stop leave nothing in doubt.
func (b *Bed) grace(e *oracle.Evidence) {
	if slices.ContainsFunc(b.cfg.Attacks, func(name string) bool { return !graceful(name) }) {
		return
	}
	if n := e.Indeterminate(); n > 0 {
		b.log.violation(oracle.CleanStop, "%d calls are in doubt although workers were only asked to stop", n)
	}
}

// turns is how many turns were sent.
func (l *load) turns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

func (b *Bed) summary(e *oracle.Evidence, found []oracle.Violation) *Summary {
	c := b.watch.total()
	s := &Summary{
		Seed: b.cfg.Seed, Violations: len(found), Turns: b.reader.ended(), Kills: b.log.counted(countKills),
		Rebalances: c.rebalances, Transactions: c.transactions, Unknown: c.unknown, Indeterminate: e.Indeterminate(),
		BrokerRestarts: b.log.counted(countBrokerRestarts), Exits: b.log.counted(countExits),
		Seconds: float64(time.Since(b.log.began).Milliseconds()) / 1000, Attacks: make(map[string]int),
	}
	for _, name := range b.cfg.Attacks {
		s.Attacks[name] = b.log.counted("attack:" + name)
	}
	return s
}
