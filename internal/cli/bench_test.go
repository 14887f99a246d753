package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

func TestBench_MeasuresTheWorkerBesideTheFloor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		tools     string
		changelog float64 // the most records a turn may cause, tombstones included
	}{{benchRead, 6}, {benchWrite, 10}} {
		t.Run(tc.tools, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code := Main(t.Context(), []string{
				"bench", "--tools", tc.tools, "--in-flight", "8", "--warm", "100ms", "--time", "400ms", "--partitions", "2", "--json",
			}, testProgram(), testEnv(t, &out))
			if code != exitOK {
				t.Fatalf("exit status %d:\n%s", code, &out)
			}
			var r benchResult
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatalf("read %q: %v", &out, err)
			}
			if r.Tools != tc.tools || r.InFlight != 8 || r.Brokers != 1 {
				t.Errorf("the row is for %s at %d on %d brokers", r.Tools, r.InFlight, r.Brokers)
			}
			for name, v := range map[string]float64{
				"turns_per_s": r.TurnsPerS, "p50_ms": r.P50MS, "p99_ms": r.P99MS, "worker cpu": r.CPU.Worker, "peak_mb": r.PeakMB, "bytes_per_turn": r.BytesPerTurn,
				"floor_turns_per_s": r.FloorTurnsPerS, "floor_p50_ms": r.FloorP50MS, "cycles_per_s": r.CyclesPerS, "floor_cycles_per_s": r.FloorCyclesPerS,
			} {
				if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
					t.Errorf("%s is %v", name, v)
				}
			}
			if r.RecordsPerTurn.Events != 12 {
				t.Errorf("%v events a turn, want 12", r.RecordsPerTurn.Events)
			}
			if n := r.RecordsPerTurn.Changelog; n <= 0 || n > tc.changelog {
				t.Errorf("%v changelog records a turn, want at most %v", n, tc.changelog)
			}
		})
	}
}
