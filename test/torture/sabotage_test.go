//go:build kafka

package torture_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/torture"
)

// TestOracle_SeesExactlyTheBrokenPromise builds the worker once for each promise with the tag of its sabotage, runs it, and expects
// the oracle to find that promise broken and no other. The sound worker keeps them all.
func TestOracle_SeesExactlyTheBrokenPromise(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(time.Second), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)
	if err != nil {
		t.Fatalf("start the embedded broker: %v", err)
	}
	t.Cleanup(cluster.Close)
	dir := t.TempDir()
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		if found := tortured(t, cluster, build(t, dir, "")); len(found) > 0 {
			t.Errorf("a sound worker broke %v", found)
		}
	})
	for _, promise := range []oracle.Promise{
		oracle.EventOnce, oracle.OneEnd, oracle.Stream, oracle.CallOrder, oracle.AtMostOnce, oracle.Completed, oracle.SessionOrder,
		oracle.OffsetPrefix, oracle.State, oracle.DeadLetters, oracle.InTime, oracle.CleanStop, oracle.Sound,
	} {
		t.Run(string(promise), func(t *testing.T) {
			t.Parallel()
			found := tortured(t, cluster, build(t, dir, "sabotage_"+string(promise)))
			var broken []oracle.Promise
			for _, v := range found {
				if !slices.Contains(broken, v.Promise) {
					broken = append(broken, v.Promise)
				}
			}
			others := slices.DeleteFunc(slices.Clone(broken), func(p oracle.Promise) bool { return p == promise || follows(promise, p) })
			if !slices.Contains(broken, promise) || len(others) > 0 {
				t.Errorf("the oracle found %v, want %s alone", broken, promise)
			}
		})
	}
}

// follows reports whether a broken promise may be the consequence of another: what is committed before it is done is lost when its
// worker stops at that moment.
func follows(from, broken oracle.Promise) bool {
	return from == oracle.OffsetPrefix && (broken == oracle.OneEnd || broken == oracle.State)
}

// tortured runs a worker for a few seconds without attacking it.
func tortured(t *testing.T, cluster *kfake.Cluster, binary string) []oracle.Violation {
	t.Helper()
	var out strings.Builder
	_, found, err := torture.Judge(t.Context(), torture.Config{
		Seed: 11, Attack: 4 * time.Second, Binary: binary, Rate: 40, Workers: 1, Protocol: "classic", Bound: bound(binary),
	}, torture.Brokers{Addrs: cluster.ListenAddrs()}, &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// bound is how long turns may take to end: short for the worker whose turns do not.
func bound(binary string) time.Duration {
	if strings.HasSuffix(binary, string(oracle.InTime)) {
		return 15 * time.Second
	}
	return 3 * time.Minute
}

// build builds the torture program, whose worker is sabotaged by the tag.
func build(t *testing.T, dir, tag string) string {
	t.Helper()
	binary := filepath.Join(dir, "torture-"+tag)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-tags", tag, "-o", binary, "./cmd/torture")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the worker: %v\n%s", err, text)
	}
	return binary
}
