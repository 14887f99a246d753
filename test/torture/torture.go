// Package torture attacks worker processes that run turns, by a schedule that follows from a seed, and asks the oracle whether
// every promise was kept.
//
//	load  ->  turns  ->  workers  <-  attacks
//	                        |
//	        reader, samples, ledger, local state  ->  oracle
//
// Attacks on workers and on brokers run side by side, each by a random stream of its own. What a worker does wrong while it is
// attacked is noted at once, the rest is judged when all is done.
//
// An attack is one value with a function, in a file of its own; see Attack.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// Config says what one run does.
type Config struct {
	// Seed decides the turns, the attacks and their order.
	Seed uint64
	// Attack is how long workers are attacked.
	Attack time.Duration
	// Attacks are the names of those that are used.
	Attacks []string
	// Protocol is the group protocol.
	Protocol string
	// Binary is the worker; it is given the argument run.
	Binary string
	// Next is the same built as the next release, empty if there is none.
	Next string
	// Rate is how many records a second are sent, 25 by default.
	Rate int
	// Bound is how long everything may take to be done after the last fault, 2 minutes by default.
	Bound time.Duration
	// Keep keeps the work folder even if nothing was found.
	Keep bool
	// Workers is how many there are, 3 by default.
	Workers int
}

func (c Config) withDefaults() Config {
	if c.Rate == 0 {
		c.Rate = 25
	}
	if c.Bound == 0 {
		c.Bound = 2 * time.Minute
	}
	if c.Workers == 0 {
		c.Workers = 3
	}
	return c
}

// exit statuses.
const (
	exitKept    = 0
	exitBroken  = 1
	exitFailure = 2
)

// Main is the program: it reads the TORTURE_ variables, starts a cluster, runs each seed, and returns the exit status.
func Main(ctx context.Context, getenv func(string) string, out io.Writer) (int, error) {
	plan, err := readPlan(getenv)
	if err != nil {
		return exitFailure, err
	}
	say(out, "torture: seed %s, %s each, attacks %s\n", joined(plan.seeds), plan.config.Attack, strings.Join(plan.config.Attacks, ","))
	if plan.config.Binary, err = os.Executable(); err != nil {
		return exitFailure, fmt.Errorf("find this program: %w", err)
	}
	plan.config.Next = nextTo(plan.config.Binary)
	brokers, stop, err := startBrokers(ctx, plan.config.withDefaults().Workers)
	if err != nil {
		return exitFailure, err
	}
	defer stop()
	var total Summary
	for i, seed := range plan.seeds {
		s, err := Run(ctx, plan.run(i), brokers, out)
		if err != nil {
			return exitFailure, fmt.Errorf("torture with seed %d: %w", seed, err)
		}
		if len(plan.seeds) > 1 {
			say(out, "%s\n", s.json())
		}
		total.add(s)
	}
	say(out, "%s\n", total.json())
	if total.Violations > 0 {
		return exitBroken, nil
	}
	return exitKept, nil
}

// nextTo is the worker of the next release, which lies beside this one, or empty.
func nextTo(binary string) string {
	next := binary + "-next"
	if _, err := os.Stat(next); err != nil {
		return ""
	}
	return next
}

// startBrokers starts three brokers and a network between them and each worker.
func startBrokers(ctx context.Context, workers int) (Brokers, func(), error) {
	const n = 3
	nets, err := openNets(workers, n)
	if err != nil {
		return Brokers{}, nil, err
	}
	cfg := kafkatest.Config{Brokers: n, Properties: map[string]string{
		"group.consumer.session.timeout.ms": strconv.FormatInt(sessionTimeout.Milliseconds(), 10),
		"broker.session.timeout.ms":         strconv.FormatInt(brokerSession.Milliseconds(), 10),
		"broker.heartbeat.interval.ms":      "1000",
	}}
	for _, net := range nets {
		cfg.Nets = append(cfg.Nets, net.Addrs())
	}
	cluster, err := kafkatest.Start(ctx, cfg)
	if err != nil {
		return Brokers{}, nil, errors.Join(err, closeNets(nets))
	}
	stop := func() {
		_ = closeNets(nets) // Nothing is left that could use them.
		cluster.Stop()
	}
	for i, net := range nets {
		if err := net.Forward(ctx, cluster.Behind(i)); err != nil {
			stop()
			return Brokers{}, nil, err
		}
	}
	return Brokers{Addrs: cluster.Addrs(), Cluster: cluster, Nets: nets}, stop, nil
}

type plan struct {
	config Config
	seeds  []uint64
	// share gives each seed a part of the attacks, so that all of them come in runs that are too short for one round.
	share bool
	// both runs the seeds under the classic and the consumer protocol in turn.
	both bool
}

// run is what is done with one of the seeds.
func (p *plan) run(i int) Config {
	cfg := p.config
	cfg.Seed = p.seeds[i]
	if p.share {
		cfg.Attacks = nil
		for k, name := range p.config.Attacks {
			if k%len(p.seeds) == i {
				cfg.Attacks = append(cfg.Attacks, name)
			}
		}
	}
	if p.both && i%2 == 1 {
		cfg.Protocol = consumerProtocol
	}
	return cfg
}

const (
	classicProtocol  = "classic"
	consumerProtocol = "consumer"
)

// readPlan reads the TORTURE_ variables.
func readPlan(getenv func(string) string) (plan, error) {
	p := plan{config: Config{Attack: 10 * time.Minute, Attacks: Names(), Protocol: classicProtocol}}
	if v := getenv("TORTURE_MINUTES"); v != "" {
		minutes, err := strconv.ParseFloat(v, 64)
		if err != nil || minutes <= 0 {
			return p, fmt.Errorf("TORTURE_MINUTES is %q, want a number above 0", v)
		}
		p.config.Attack = time.Duration(minutes * float64(time.Minute))
	}
	if v := getenv("TORTURE_SECONDS"); v != "" {
		seconds, err := strconv.ParseFloat(v, 64)
		if err != nil || seconds <= 0 {
			return p, fmt.Errorf("TORTURE_SECONDS is %q, want a number above 0", v)
		}
		p.config.Attack = time.Duration(seconds * float64(time.Second))
	}
	if v := getenv("TORTURE_ATTACKS"); v != "" && v != "all" {
		p.config.Attacks = strings.Split(v, ",")
	}
	for _, name := range p.config.Attacks {
		if !slices.Contains(Names(), name) {
			return p, fmt.Errorf("TORTURE_ATTACKS names %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	switch v := getenv("TORTURE_PROTOCOL"); v {
	case "":
	case classicProtocol, consumerProtocol:
		p.config.Protocol = v
	case "both":
		p.both = true
	default:
		return p, fmt.Errorf("TORTURE_PROTOCOL is %q, want %s, %s or both", v, classicProtocol, consumerProtocol)
	}
	p.share = getenv("TORTURE_SHARE") != ""
	if v := getenv("TORTURE_RATE"); v != "" {
		rate, err := strconv.Atoi(v)
		if err != nil || rate <= 0 {
			return p, fmt.Errorf("TORTURE_RATE is %q, want records a second", v)
		}
		p.config.Rate = rate
	}
	p.config.Keep = getenv("TORTURE_KEEP") != ""
	seeds := getenv("TORTURE_SEEDS")
	if seeds == "" {
		seeds = getenv("TORTURE_SEED")
	}
	if seeds == "" {
		seeds = strconv.FormatUint(rand.Uint64N(1_000_000), 10) //nolint:gosec // any number is as good
	}
	for one := range strings.SplitSeq(seeds, ",") {
		seed, err := strconv.ParseUint(strings.TrimSpace(one), 10, 64)
		if err != nil {
			return p, fmt.Errorf("read the seed %q: %w", one, err)
		}
		p.seeds = append(p.seeds, seed)
	}
	return p, nil
}

func joined(seeds []uint64) string {
	var out []string
	for _, s := range seeds {
		out = append(out, strconv.FormatUint(s, 10))
	}
	return strings.Join(out, ",")
}

// say writes to a person. When nobody can read any more there is nobody to tell.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
