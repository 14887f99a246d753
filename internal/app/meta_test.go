package app

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/consumer"
)

// seedsPerWorld is how many disturbed runs are compared with one that was left alone.
const seedsPerWorld = 5

// TestWorker_SaysTheSameWhateverHappens sends the same records to one worker that is left alone, and to up to three that are
// killed, drained, cut off and started again while brokers fail, leaders move and models and tools take their time. What a reader
// of the topics sees must be the same, and the state of every disk must come to be the fold of the changelog.
//
// The seeds are 1 to LATHE_TEST_SEEDS, 5 by default; LATHE_TEST_SEED=n runs one again.
func TestWorker_SaysTheSameWhateverHappens(t *testing.T) {
	t.Parallel()
	var indeterminate, kills atomic.Int64
	worlds := map[uint64][]uint64{}
	for _, seed := range metaSeeds(t) {
		worlds[seed/seedsPerWorld] = append(worlds[seed/seedsPerWorld], seed)
	}
	t.Run("worlds", func(t *testing.T) {
		for _, world := range slices.Sorted(maps.Keys(worlds)) {
			t.Run(strconv.FormatUint(world, 10), func(t *testing.T) {
				t.Parallel()
				in := metaLoad(rand.New(rand.NewPCG(world, 0)))
				var want *outcome
				synctest.Test(t, func(t *testing.T) { want = undisturbed(t, world, in) })
				if t.Failed() {
					return
				}
				for _, seed := range worlds[world] {
					t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							i, k := disturbed(t, seed, in, want)
							indeterminate.Add(int64(i))
							kills.Add(int64(k))
						})
					})
				}
			})
		}
	})
	t.Logf("%d kills, %d turns with a call in doubt", kills.Load(), indeterminate.Load())
}

func metaSeeds(t *testing.T) []uint64 {
	t.Helper()
	if one := os.Getenv("LATHE_TEST_SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		must(t, err)
		return []uint64{seed}
	}
	n := 5
	if many := os.Getenv("LATHE_TEST_SEEDS"); many != "" {
		var err error
		n, err = strconv.Atoi(many)
		must(t, err)
	} else if testing.Short() {
		n = 2
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	return seeds
}

// undisturbed is the run of one worker that nothing happens to.
func undisturbed(t *testing.T, world uint64, in *metaInputs) *outcome {
	t.Helper()
	b := newMetaBed(t, world, 1, 2, consumer.ProtocolClassic)
	p := b.start("pod-0", vfs.NewCrashableMem())
	for _, part := range [][]metaInput{in.first, in.second} {
		for _, r := range part {
			b.send(r)
		}
		b.handled(10*time.Minute, func() {})
	}
	must(t, p.drain())
	o := b.outcome()
	for id, events := range o.raw {
		if has(events, "indeterminate") {
			t.Errorf("turn %s is indeterminate although nothing happened", id)
		}
	}
	return o
}

// disturbed is a run under chaos.
func disturbed(t *testing.T, seed uint64, in *metaInputs, want *outcome) (indeterminate, kills int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	brokers, version, protocol := 1+2*random.IntN(2), 1+random.IntN(2), consumer.ProtocolClassic
	if version == 2 && random.IntN(3) == 0 {
		protocol = consumer.ProtocolConsumer
	}
	b := newMetaBed(t, seed, brokers, version, protocol)
	b.pace.longest = time.Duration(1+random.IntN(400)) * time.Millisecond
	c := &chaos{metaBed: b, random: random, disks: map[string]*vfs.MemFS{}, done: map[string]int{}}
	t.Logf("replay: LATHE_TEST_SEED=%d; %d brokers, transaction.version %d, %s, delays up to %s", seed, brokers, version, protocol, b.pace.longest)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done: %v\n%s", c.done, strings.Join(b.watch.lines, "\n"))
		}
	})
	c.raise()
	for _, part := range [][]metaInput{in.first, in.second} {
		for _, r := range part {
			if b.send(r); random.IntN(4) == 0 {
				<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
				c.step()
			}
		}
		for range 6 {
			<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond)
			c.step()
		}
		c.mend()
		b.handled(10*time.Minute, func() {
			if c.reap(); len(c.live) == 0 {
				c.raise()
			}
		})
	}
	for len(b.live) > 0 {
		p := b.live[0]
		if err := p.drain(); err != nil {
			t.Errorf("drain %s: %v", p.name, err)
		}
		c.disks[p.instance] = p.disk
	}
	indeterminate = b.compare(b.outcome(), want, in)
	c.restored()
	return indeterminate, c.done["kill"] + c.done["kill silently"]
}

// restored starts one worker after another on every disk that is left, whatever is on it, and compares its state with the changelog.
func (c *chaos) restored() {
	c.t.Helper()
	for _, instance := range slices.Sorted(maps.Keys(c.disks)) {
		p := c.start(instance, c.disks[instance])
		c.eventually("all partitions run on "+p.name, 2*time.Minute, func() bool {
			running := 0
			for _, s := range p.worker.Status().Partitions {
				if s.State == "running" {
					running++
				}
			}
			return running == metaPartitions
		})
		p.stop()
		<-p.ended
		must(c.t, p.err)
		for id, want := range c.folded() {
			got := map[string]string{}
			must(c.t, p.store.Scan(id, "", func(key string, value []byte) error {
				got[key] = string(value)
				return nil
			}))
			if diff := cmp.Diff(want, got); diff != "" {
				c.t.Errorf("%s, partition %d (-changelog +state):\n%s", instance, id, diff)
			}
		}
		p.close()
	}
}
