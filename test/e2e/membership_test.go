package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
)

// TestWorkersComeAndGo_UnderBothProtocols lets turns flow while a second worker joins, drains, and comes back. The workers are
// dynamic members, each with a host name of its own, as in pods.
func TestWorkersComeAndGo_UnderBothProtocols(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.settings["LATHE_GROUP_PROTOCOL"] = protocol
			b.createTurns()
			host := func(name string) *process { return b.start(name, "LATHE_INSTANCE_ID=", envHost+"="+name) }
			first := host("pod-a").ready()
			r := b.reader()
			sent := 0
			flow := func(n int) {
				for range n {
					b.send(fmt.Sprintf("stream-%d", sent), fmt.Sprintf("session-%d", sent%16))
					sent++
				}
			}
			flow(40)
			second := host("pod-b")
			flow(40)
			second.awaitPartitions()
			flow(40)
			second.signal(syscall.SIGTERM)
			flow(40)
			if code := second.wait(); code != 0 {
				t.Errorf("the second worker's drain ended with %d\n%s", code, second.tail())
			}
			third := host("pod-b")
			flow(20)
			third.awaitPartitions()
			first.signal(syscall.SIGTERM)
			flow(20)
			if code := first.wait(); code != 0 {
				t.Errorf("the first worker's drain ended with %d\n%s", code, first.tail())
			}
			r.allEnded()
			b.awaitCommitted()
			third.drain()
			r.check()
			workers := make(map[string]bool)
			for _, o := range r.outputs {
				workers[o.env.Worker] = true
			}
			if len(workers) != 2 {
				t.Errorf("events come from %v, want two workers", workers)
			}
		})
	}
}
