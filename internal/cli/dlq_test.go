package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/schemas"
)

// letterBed is an embedded broker with the topics of turns and of dead letters.
type letterBed struct {
	*testing.T

	environ []string
	cl      *kgo.Client
}

const (
	letterPartitions = 2
	turnsTopic       = "lathe.turns"
	lettersTopic     = "lathe.turns.dlq"
)

func newLetterBed(t *testing.T, environ ...string) *letterBed {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, turnsTopic), kfake.SeedTopics(letterPartitions, lettersTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &letterBed{t, append(environ, "LATHE_BROKERS="+strings.Join(c.ListenAddrs(), ",")), cl}
}

// refused is a dead letter as a worker writes it.
type refused struct {
	reason     schemas.Code
	key, value []byte
	headers    []kgo.RecordHeader
	to         int32
	cut        bool
	at         time.Time
}

func (b *letterBed) write(letters ...refused) {
	b.Helper()
	for i, l := range letters {
		add := func(h []kgo.RecordHeader, name, value string) []kgo.RecordHeader {
			return append(h, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		h := add(l.headers, "lathe_reason", string(l.reason))
		h = add(h, "lathe_detail", "something is wrong")
		h = add(add(add(h, "lathe_topic", turnsTopic), "lathe_partition", "3"), "lathe_offset", strconv.Itoa(100+i))
		h = add(h, "lathe_at", "2026-03-04T05:06:07.5Z")
		if l.cut {
			h = add(add(add(h, "lathe_cut", "true"), "lathe_value_bytes", "2000000"), "lathe_value_sha256", "abcd")
		}
		b.produce(&kgo.Record{Topic: lettersTopic, Partition: l.to, Key: l.key, Value: l.value, Headers: h, Timestamp: l.at})
	}
}

func (b *letterBed) produce(recs ...*kgo.Record) {
	b.Helper()
	if err := b.cl.ProduceSync(b.Context(), recs...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

func (b *letterBed) run(args ...string) (code int, stdout, stderr string) {
	b.Helper()
	return runCommand(b.T, b.environ, "", append([]string{"dlq"}, args...)...)
}

// want runs a command and expects its exit status and texts in what it prints.
func (b *letterBed) want(code int, texts []string, args ...string) string {
	b.Helper()
	got, out, errs := b.run(args...)
	if got != code {
		b.Errorf("dlq %v: exit status %d, want %d\n%s%s", args, got, code, out, errs)
	}
	for _, text := range texts {
		if !strings.Contains(out+errs, text) {
			b.Errorf("dlq %v does not say %q:\n%s%s", args, text, out, errs)
		}
	}
	return out
}

// turns reads what was sent to the turns topic.
func (b *letterBed) turns() []*kgo.Record {
	b.Helper()
	ends, err := kadm.NewClient(b.cl).ListEndOffsets(b.Context(), turnsTopic)
	if err != nil {
		b.Fatal(err)
	}
	var left int64
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	reader, err := kgo.NewClient(append(b.cl.Opts(), kgo.ConsumeTopics(turnsTopic))...)
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	var out []*kgo.Record
	for int64(len(out)) < left {
		out = append(out, reader.PollFetches(b.Context()).Records()...)
	}
	slices.SortFunc(out, func(a, c *kgo.Record) int {
		return strings.Compare(string(a.Key)+string(a.Value), string(c.Key)+string(c.Value))
	})
	return out
}

func turnJSON(turn, session string) []byte {
	return fmt.Appendf(nil, `{"turn_id":%q,"session_id":%q,"messages":[{"role":"user","content":"hi"}]}`, turn, session)
}

// somethingOfEach writes a dead letter of each kind.
func (b *letterBed) somethingOfEach() {
	b.Helper()
	early, late := time.Now().Add(-72*time.Hour), time.Now().Add(-time.Hour)
	b.write(
		refused{reason: schemas.CodeUnknownAgent, key: []byte("ann"), value: turnJSON("t-1", "ann"), at: early, headers: []kgo.RecordHeader{
			{Key: "traceparent", Value: []byte("00-x")}, {Key: "lathe_reason", Value: []byte("mine")},
		}},
		refused{reason: schemas.CodeUndecodable, key: []byte("ann"), value: []byte("{\x1b[31m"), at: early, to: 1},
		refused{reason: schemas.CodeKeyMismatch, key: []byte("wrong"), value: turnJSON("t-2", "ben"), at: late},
		refused{reason: schemas.CodeKeyMismatch, value: turnJSON("t-3", "cleo"), at: late, to: 1},
		refused{reason: schemas.CodeTooLarge, key: []byte("ann"), value: []byte(`{"turn_id":"t-4`), cut: true, at: late},
		refused{reason: schemas.CodeConflict, key: []byte("ann"), value: turnJSON("t-5", "ann"), at: late, to: 1},
		refused{reason: schemas.CodeTombstone, key: []byte("ann"), at: late},
		refused{reason: schemas.CodePartitionMismatch, key: []byte("dan"), value: turnJSON("t-6", "dan"), at: late, to: 1},
	)
	b.produce(&kgo.Record{Topic: lettersTopic, Partition: 1, Key: []byte("stranger"), Value: []byte{0, 1, 2, 0xff}, Timestamp: late})
}

func TestDLQList_PrintsALineEachAndFilters(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	b.want(exitOK, nil, "list")
	b.somethingOfEach()
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"all", nil, []string{"0/0", "0/1", "0/2", "0/3", "1/0", "1/1", "1/2", "1/3", "1/4"}},
		{"reasons", []string{"--reason", "key_mismatch,conflict"}, []string{"0/1", "1/1", "1/2"}},
		{"a session, or key", []string{"--session", "ann"}, []string{"0/0", "0/2", "0/3", "1/0", "1/2"}},
		{"a session under another key", []string{"--session", "ben"}, []string{"0/1"}},
		{"a turn", []string{"--turn", "t-6"}, []string{"1/3"}},
		{"since", []string{"--since", "1d"}, []string{"0/1", "0/2", "0/3", "1/1", "1/2", "1/3", "1/4"}},
		{"until", []string{"--until", "24h"}, []string{"0/0", "1/0"}},
		{"between", []string{"--since", "4d", "--until", "2d", "--reason", "undecodable"}, []string{"1/0"}},
		{"a partition", []string{"--partition", "1"}, []string{"1/0", "1/1", "1/2", "1/3", "1/4"}},
		{"some", []string{"--limit", "3"}, []string{"0/0", "0/1", "0/2"}},
		{"none", []string{"--turn", "t-none"}, nil},
	} {
		out := b.want(exitOK, nil, append([]string{"list"}, tc.args...)...)
		var names []string
		for line := range strings.Lines(out) {
			names = append(names, strings.Fields(line)[0])
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		out = b.want(exitOK, nil, append([]string{"list", "--json"}, tc.args...)...)
		names = nil
		for line := range strings.Lines(out) {
			var j letterJSON
			if err := json.Unmarshal([]byte(line), &j); err != nil {
				t.Fatalf("%s: %v in %q", tc.name, err, line)
			}
			names = append(names, fmt.Sprintf("%d/%d", j.Partition, j.Offset))
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s, JSON (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestDLQShow_ShowsAllAndWhatToDo(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	b.somethingOfEach()
	b.want(exitOK, []string{
		"unknown_agent", "something is wrong", "partition 3, offset 100", `traceparent: "00-x"`, `lathe_reason: "mine"`, "turn       t-1",
		"    \"turn_id\": \"t-1\"", "Add the agent to the manifest",
	}, "show", "0/0")
	b.want(exitOK, []string{"2000000 bytes", "abcd", "cannot be replayed"}, "show", "0/2")
	b.want(exitOK, []string{"00 01 02 ff", "No worker wrote this record"}, "show", "1/4")
	out := b.want(exitOK, []string{"undecodable"}, "show", "1/0")
	if strings.Contains(out, "\x1b") {
		t.Errorf("what came from outside reaches the terminal as it is: %q", out)
	}
	for line := range strings.Lines(b.want(exitOK, nil, "show", "--json", "0/0", "1/4", "1/1")) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	b.want(exitFailed, []string{"0/99", "0/0-3"}, "show", "0/99")
	b.want(exitRefused, []string{"<partition>/<offset>"}, "show", "12")
	b.want(exitRefused, nil, "show")
}

func TestDLQAdvice_HasAnAnswerToEveryReason(t *testing.T) {
	t.Parallel()
	known := make(map[schemas.Code]bool)
	for _, a := range reasonAdvice() {
		if known[a.reason] = true; !a.reason.DeadLetter() || a.text == "" {
			t.Errorf("%s: %q", a.reason, a.text)
		}
	}
	for _, r := range []schemas.Code{
		schemas.CodeUndecodable, schemas.CodeSchemaUnknown, schemas.CodeInvalidTurn, schemas.CodeKeyMismatch, schemas.CodePartitionMismatch,
		schemas.CodeConflict, schemas.CodeTooLarge, schemas.CodeTombstone, schemas.CodeUnknownAgent,
	} {
		if !known[r] {
			t.Errorf("there is no advice on %s", r)
		}
	}
}

func TestDLQReplay_PlansFirstAndThenSendsTheRecordAsItCame(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	b.somethingOfEach()
	b.want(exitOK, []string{"would be sent", "Nothing was sent yet", "--yes"}, "replay", "--reason", "unknown_agent")
	b.want(exitOK, []string{"would be sent", "--dry-run out"}, "replay", "0/0", "--dry-run")
	if got := b.turns(); len(got) != 0 {
		t.Fatalf("a plan has sent %d records", len(got))
	}
	b.want(exitOK, []string{"t-1", "1 sent"}, "replay", "--reason", "unknown_agent", "--yes")
	b.want(exitOK, []string{"1 sent"}, "replay", "1/3")
	got := b.turns()
	if len(got) != 2 {
		t.Fatalf("%d records were sent, want 2", len(got))
	}
	for i, want := range []struct {
		key, value, from string
		headers          []kgo.RecordHeader
	}{
		{"ann", string(turnJSON("t-1", "ann")), "lathe.turns.dlq/0/0", []kgo.RecordHeader{
			{Key: "traceparent", Value: []byte("00-x")}, {Key: "lathe_reason", Value: []byte("mine")},
		}},
		{"dan", string(turnJSON("t-6", "dan")), "lathe.turns.dlq/1/3", nil},
	} {
		r := got[i]
		to, _ := consumer.PartitionerMurmur2.Place([]byte(want.key), 4)
		headers := append(slices.Clone(want.headers), kgo.RecordHeader{Key: consumer.HeaderReplayedFrom, Value: []byte(want.from)})
		if string(r.Key) != want.key || string(r.Value) != want.value || r.Partition != to {
			t.Errorf("sent %s %s to partition %d", r.Key, r.Value, r.Partition)
		}
		if diff := cmp.Diff(headers, r.Headers); diff != "" {
			t.Errorf("headers of %s (-want +got):\n%s", want.key, diff)
		}
	}
}

func TestDLQReplay_SendsNothingThatWouldComeBackAndGoesOn(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	b.somethingOfEach()
	out := b.want(exitFailed, []string{"2 sent", "7 not sent", "7 dead letters that you chose could not be sent"}, "replay", "--yes")
	for name, why := range map[string]string{
		"0/1": "key_mismatch", "0/2": "15 of 2000000 bytes", "0/3": "no value", "1/0": "undecodable", "1/1": "no key", "1/2": "conflict", "1/4": "no worker wrote it",
	} {
		line := ""
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, name+" ") {
				line = l
			}
		}
		if !strings.Contains(line, why) {
			t.Errorf("%s: %q does not say %q", name, line, why)
		}
	}
	b.want(exitOK, []string{"2 sent"}, "replay", "--rekey", "0/1", "1/1")
	b.want(exitOK, []string{"2 sent"}, "replay", "--force", "1/0", "1/2")
	b.want(exitFailed, []string{"no key"}, "replay", "--force", "1/1")
	var keys []string
	for _, r := range b.turns() {
		keys = append(keys, string(r.Key))
	}
	if diff := cmp.Diff([]string{"ann", "ann", "ann", "ben", "cleo", "dan"}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// TestDLQReplay_DoesNotDoubleWhatStaysBad tells of a record that is refused each time it is replayed: each replay has one more dead
// letter of it to choose from, and must send only the last.
func TestDLQReplay_DoesNotDoubleWhatStaysBad(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	for n := range 3 {
		l := refused{reason: schemas.CodeUnknownAgent, key: []byte("ann"), value: turnJSON("t-1", "ann")}
		if n > 0 {
			l.headers = []kgo.RecordHeader{{Key: consumer.HeaderReplayedFrom, Value: fmt.Appendf(nil, "%s/0/%d", lettersTopic, n-1)}}
		}
		b.write(l)
	}
	b.want(exitOK, []string{"1 sent", "2 passed over"}, "replay", "--yes")
	got := b.turns()
	want := []kgo.RecordHeader{{Key: consumer.HeaderReplayedFrom, Value: []byte(lettersTopic + "/0/2")}}
	if len(got) != 1 || cmp.Diff(want, got[0].Headers) != "" {
		t.Errorf("sent %d records, the first with %v", len(got), got[0].Headers)
	}
	b.want(exitOK, []string{"2 passed over"}, "replay", "--until", "0s", "--limit", "2")
}

func TestDLQReplay_PlacesAsTheWorkersDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ partitioner, key string }{{"crc32", "ann"}, {"any", "tenant-7"}} {
		t.Run(tc.partitioner, func(t *testing.T) {
			t.Parallel()
			b := newLetterBed(t, "LATHE_TURNS_PARTITIONER="+tc.partitioner)
			b.write(refused{reason: schemas.CodeUnknownAgent, key: []byte(tc.key), value: turnJSON("t-1", "ann")})
			b.want(exitOK, []string{"1 sent"}, "replay", "--yes")
			want, known := consumer.Partitioner(tc.partitioner).Place([]byte(tc.key), 4)
			if !known {
				want = 3 // Where it came from.
			}
			if got := b.turns(); len(got) != 1 || got[0].Partition != want {
				t.Errorf("sent %d records, the first to partition %d, want %d", len(got), got[0].Partition, want)
			}
		})
	}
}

func TestDLQ_ReadsOnlyWhatIsCommittedAndEnds(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	b.somethingOfEach()
	cl, err := kgo.NewClient(append(b.cl.Opts(), kgo.TransactionalID("open"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: lettersTopic, Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	out := b.want(exitOK, nil, "list")
	if n := strings.Count(out, "\n"); n != 9 {
		t.Errorf("%d lines, want 9:\n%s", n, out)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	out = b.want(exitOK, nil, "list")
	if n := strings.Count(out, "\n"); n != 9 {
		t.Errorf("%d lines after the abort, want 9:\n%s", n, out)
	}
	b.want(exitFailed, []string{"aborted"}, "show", "0/4")
}

func TestDLQ_RefusesWhatIsMisspelt(t *testing.T) {
	t.Parallel()
	b := newLetterBed(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "--reason", "unknown_agents"}, "no such reason"},
		{[]string{"list", "--since", "yesterday"}, "90m or 3d"},
		{[]string{"list", "0/1"}, "dlq list --help"},
		{[]string{"replay", "0/1", "--reason", "conflict"}, "not both"},
		{[]string{"replay", "--yes", "--dry-run"}, "one of them"},
		{[]string{"reply"}, "replay"},
	} {
		b.want(exitRefused, []string{tc.want}, tc.args...)
	}
	b.environ = append(b.environ, "LATHE_TOPIC_PREFIX=nothing.")
	b.want(exitFailed, []string{"nothing.turns", "LATHE_TOPIC_PREFIX"}, "list")
}
