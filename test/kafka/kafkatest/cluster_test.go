//go:build kafka

package kafkatest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestCluster_ServesAfterOneOfThreeIsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	c := Private(t, Config{Brokers: 3})
	topic := c.Topic(t, 3, nil)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce := func(when string) {
		t.Helper()
		for p := range int32(3) {
			r := &kgo.Record{Topic: topic, Partition: p, Value: []byte(when)}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatalf("produce %s: %v", when, err)
			}
		}
	}
	produce("before the kill")
	c.Kill(1)
	if got := len(c.PIDs()); got != 2 {
		t.Errorf("%d brokers run after the kill, want 2", got)
	}
	produce("with one broker down")
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := len(c.PIDs()); got != 3 {
		t.Errorf("%d brokers run after the restart, want 3", got)
	}
	produce("after the restart")
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatalf("restart a broker in good order: %v", err)
	}
	produce("after the second restart")
}

func TestCluster_StopLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := Private(t, Config{})
	pids, dir := c.PIDs(), c.dir
	c.Stop()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("broker %d still runs", pid)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

// envHolder makes this test binary the process that TestCluster_DiesWithTheProcessThatStartedIt kills.
const envHolder = "LATHE_TEST_HOLDER"

func TestCluster_DiesWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	if os.Getenv(envHolder) != "" {
		c := Private(t, Config{})
		fmt.Printf("\nholder %d %s\n", c.PIDs()[0], c.dir)
		<-t.Context().Done() // never: the parent kills this process
	}
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	holder.Env = append(os.Environ(), envHolder+"=1")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	pid, dir := 0, ""
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "holder" {
			pid, _ = strconv.Atoi(fields[1])
			dir = fields[2]
		}
	}
	if pid == 0 {
		t.Fatal("the holder ended without a broker")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	waitGone(t, pid)
	removeStale(filepath.Dir(dir))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data of the dead broker is still there: %v", err)
	}
}

// waitGone returns when no process has the id.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for {
		if running, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(running), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("broker %d outlives the process that started it", pid)
		}
	}
}
