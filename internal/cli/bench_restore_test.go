package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

func TestBenchRestore_MeasuresTheRestoreBesideReading(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := Main(t.Context(), []string{"bench", "restore", "--turns", "300", "--per-session", "5", "--partitions", "2", "--json"}, testProgram(), testEnv(t, &out))
	if code != exitOK {
		t.Fatalf("exit status %d:\n%s", code, &out)
	}
	var r restoreResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("read %q: %v", &out, err)
	}
	for name, v := range map[string]float64{
		"records": r.Records, "bytes": r.Bytes, "broker bytes": r.BrokerBytes, "keys": float64(r.State.Keys), "turn record": r.State.TurnBytes,
		"history a turn": r.State.PerTurn, "disk": r.DiskBytes, "restore records/s": r.Restore.RecordsS, "restore MB/s": r.Restore.MBS,
		"floor records/s": r.Floor.RecordsS, "floor MB/s": r.Floor.MBS, "peak": r.PeakMB, "resumed": r.Resumed.Seconds,
	} {
		if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
			t.Errorf("%s is %v", name, v)
		}
	}
	if r.Restore.Records != r.Records {
		t.Errorf("the worker restored %v records, reading saw %v", r.Restore.Records, r.Records)
	}
	if r.Resumed.Records >= r.Records/2 {
		t.Errorf("after a kill the worker read %v of %v records again", r.Resumed.Records, r.Records)
	}
	if want := 5 * r.State.PerTurn; math.Abs(r.State.PerSession-want) > 1 {
		t.Errorf("a session has %v bytes, want %v", r.State.PerSession, want)
	}
}
