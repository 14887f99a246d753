package app

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// RunOptions are what only tests and commands of our own set; the zero value is a worker as users run it.
type RunOptions struct {
	// Hooks are called around the steps of the commit cycle.
	Hooks consumer.Hooks
	// Now is the time that is stored, and that turns' deadlines are held against; nil is time.Now.
	Now func() time.Time
	// Store may change how the state store is opened, Consumer what the consumer works with. Nil changes nothing.
	Store    func(*statestore.Config)
	Consumer func(*consumer.Deps)
	// StopNow ends the worker at once when it is closed: no drain, like a second signal.
	StopNow <-chan struct{}
}

func (o RunOptions) withDefaults() RunOptions {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Store == nil {
		o.Store = func(*statestore.Config) {}
	}
	if o.Consumer == nil {
		o.Consumer = func(*consumer.Deps) {}
	}
	return o
}

// worker is a process that is being wired, in the order that things are opened. Each has its close.
type worker struct {
	settings *Settings
	program  Program
	logger   *slog.Logger
	instance string
	// incarnation tells this process from every other under its name.
	incarnation uint64
	telemetry   *Telemetry
	engine      *Engine
	kafka       kafka.Config
	topics      kafka.TopicSet
	caps        kafka.Capabilities
	status      *statusSink
	closers     []func(context.Context) error
}

// closeBudget bounds what a stop waits for after the drain: tools that do not return, the last spans.
const closeBudget = 5 * time.Second

// Run runs a worker until ctx ends, then drains it. It returns nil after a clean drain. An error that wraps a
// *tools.RegistrationError says what cannot be bound; nothing ran then.
func Run(ctx context.Context, s *Settings, m *Manifest, p Program, logger *slog.Logger, opts RunOptions) (err error) {
	relaxGC()
	opts = opts.withDefaults()
	w := &worker{settings: s, program: p, logger: logger, instance: instanceOf(s), incarnation: incarnation()}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := w.lockIdentity(); err != nil {
		return err
	}
	if w.telemetry, err = StartTelemetry(ctx, s.App, p.Version, w.instance); err != nil {
		return err
	}
	w.onClose(w.telemetry.Shutdown)
	w.status = &statusSink{}
	w.engine, err = NewEngine(s, m, p, EngineDeps{
		Logger: logger, Worker: w.process(), Telemetry: w.telemetry, Status: w.status.emit, Now: opts.Now,
	})
	if err != nil {
		return err
	}
	w.onClose(w.engine.Close)
	if err := w.connect(ctx); err != nil {
		return notStarted(ctx, err)
	}
	c, err := w.consumer(ctx, opts)
	if err != nil {
		return notStarted(ctx, err)
	}
	return w.run(ctx, c, opts)
}

// notStarted is what a start that did not come to its end means: nothing, when the worker was told to stop meanwhile. It has
// nothing to drain, and a deployment that is rolled back at once must not see a failure.
func notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// relaxGC lets the heap grow to three times what is live before it is collected, unless GOGC says otherwise: turns make much
// short-lived garbage beside little that lives. Measured at 512 turns in flight: about a tenth less CPU time a turn for
// some 50 MB.
func relaxGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// instanceOf is the name of this process in transactional ids: the instance id, else the host's name.
func instanceOf(s *Settings) string {
	if s.InstanceID != "" {
		return s.InstanceID
	}
	host, err := os.Hostname()
	if err != nil {
		return "worker"
	}
	return host
}

func (w *worker) onClose(f func(context.Context) error) { w.closers = append(w.closers, f) }

// close closes what was opened, newest first, with a budget of its own.
func (w *worker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(w.closers) {
		errs = append(errs, c(ctx))
	}
	return errors.Join(errs...)
}

// connect reaches the cluster once and checks it and the topics, so that a worker which cannot keep its promises does not
// start.
func (w *worker) connect(ctx context.Context) error {
	w.kafka = KafkaConfig(w.settings, w.program.Version, w.logger.With(slog.String("component", "kafka")))
	cl, err := w.kafka.NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	if w.caps, err = kafka.CheckBrokers(ctx, cl, w.settings.TransactionTimeout); err != nil {
		return err
	}
	if w.topics, err = kafka.EnsureTopics(ctx, cl, topicsConfig(w.settings), w.logger); err != nil {
		return err
	}
	return checkRecordLimit(w.settings, w.topics)
}

// consumer opens the state and makes the consumer.
func (w *worker) consumer(ctx context.Context, opts RunOptions) (*consumer.Worker, error) {
	s := w.settings
	registry, err := NewRegistry(s)
	if err != nil {
		return nil, err
	}
	codec, err := w.codec(ctx, registry, opts.Now)
	if err != nil {
		return nil, err
	}
	if err := w.engine.checkAgents(codec); err != nil {
		return nil, err
	}
	local := statestore.Config{
		Dir: s.DataDir, RecordBytes: valueBudget(s), Age: dedupe.Age, Formats: statestore.Formats{Write: byte(s.StateFormat)}, //nolint:gosec // Bounded by its tag.
		Logger: w.logger.With(slog.String("component", "statestore")),
	}
	opts.Store(&local)
	store, err := statestore.Open(local) //nolint:contextcheck // Pebble reports damage from goroutines of its own.
	if err != nil {
		return nil, err
	}
	w.onClose(func(ctx context.Context) error { return closeStore(ctx, store) })
	if err := w.status.open(ctx, w, registry); err != nil {
		return nil, err
	}
	w.onClose(w.status.close)
	deps := consumer.Deps{
		Handler: newHandler(w.engine, codec, w.telemetry, s.App, w.logger),
		Decoder: NewDecoder(s, registry), Store: store, NewClient: w.kafka.NewClient,
		Logger: w.logger.With(slog.String("component", "consumer")), Meter: w.telemetry.Meter(), Hooks: opts.Hooks, Now: opts.Now,
	}
	opts.Consumer(&deps)
	return consumer.New(consumerConfig(s, w.instance, w.incarnation, w.topics, w.caps), deps)
}

// closeStore closes the store, bounded by ctx: a disk that takes no more writes must not keep the process from ending.
func closeStore(ctx context.Context, store *statestore.Store) error {
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close state store: %w", context.Cause(ctx))
	}
}

func (w *worker) codec(ctx context.Context, registry *kafka.Registry, now func() time.Time) (*dedupe.Codec, error) {
	s, enc := w.settings, w.settings.Encoding.Resolved()
	toolEvents, err := NewEncoder(ctx, s, registry, w.topics.ToolEvents.Name, enc.ToolEvents, schemas.RecordToolEvent)
	if err != nil {
		return nil, err
	}
	turnEvents, err := NewEncoder(ctx, s, registry, w.topics.TurnEvents.Name, enc.TurnEvents, schemas.RecordTurnOutput)
	if err != nil {
		return nil, err
	}
	return dedupe.NewCodec(dedupe.Config{
		App: s.App, Worker: w.instance, Process: w.process(), ToolTopic: w.topics.ToolEvents.Name, TurnTopic: w.topics.TurnEvents.Name,
		ToolEncoder: toolEvents, TurnEncoder: turnEvents, RecordBytes: valueBudget(s), Now: now,
		TurnRetention: s.DedupeRetention, SessionRetention: s.SessionRetention,
		SessionTurns: s.SessionTurns, SessionBytes: int(s.SessionBytes),
	})
}

// process names this very process in facts.
func (w *worker) process() string {
	return w.instance + "/" + strconv.FormatUint(w.incarnation, 16)
}

// incarnation is 64 random bits that tell this process from every other, its predecessors under the same id included.
func incarnation() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return binary.BigEndian.Uint64(b[:])
}

// run runs the consumer and the admin server until the first of them ends.
func (w *worker) run(ctx context.Context, c *consumer.Worker, opts RunOptions) error {
	admin, err := listenAdmin(ctx, w.settings.AdminAddr, c, w.engine.models, w.telemetry)
	if err != nil {
		return err
	}
	w.logger.InfoContext(ctx, "worker starts", slog.String("app", w.settings.App), slog.String("instance", w.instance),
		slog.String("version", w.program.Version), slog.Any("agents", w.engine.Agents()), slog.String("admin_addr", admin.addr()))
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	g, serving := errgroup.WithContext(serving)
	g.Go(func() error { return admin.serve(serving) })
	g.Go(func() error {
		defer stopServing()
		return w.consume(ctx, c, opts.StopNow)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	w.logger.InfoContext(ctx, "worker is drained")
	return nil
}

func (w *worker) consume(ctx context.Context, c *consumer.Worker, stopNow <-chan struct{}) error {
	done := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-stopNow:
			c.StopNow()
		case <-done:
		}
	}()
	err := c.Run(ctx)
	close(done)
	<-watching
	if err != nil {
		return fmt.Errorf("run the worker: %w%s", err, w.identityHint(err))
	}
	return nil
}

// identityHint says what to set when another process has the identity of this one.
func (w *worker) identityHint(err error) string {
	switch {
	case !errors.Is(err, txn.ErrDuplicateID) && !errors.Is(err, txn.ErrSecondProcess) && !errors.Is(err, txn.ErrFencedInstance):
		return ""
	case w.settings.InstanceID == "":
		return fmt.Sprintf(" (without LATHE_INSTANCE_ID the host name, %s, is the identity of a worker: to run several workers of one LATHE_APP on a host, give each an id of its own)", w.instance)
	}
	return fmt.Sprintf(" (another process runs with LATHE_APP=%s and LATHE_INSTANCE_ID=%s: give each worker an id of its own)", w.settings.App, w.settings.InstanceID)
}
