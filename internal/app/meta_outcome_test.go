package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// outcome is what a run has left behind, without what may differ between two runs: times, attempts, who did it, and in which order
// calls that run side by side came to their ends.
type outcome struct {
	// turns are the events of each turn, sorted by what they are.
	turns map[string][]string
	// order are the turns of each session in the order in which they began.
	order map[string][]string
	// letters are the dead letters with reason and origin; rejected the events beside them.
	letters, rejected []string
	// keys are the keys of the state; values are left out, since they hold times.
	keys []string

	// raw are the events of each turn in seq order, as they were.
	raw map[string][]metaEvent
}

type metaEvent struct {
	schemas.Envelope

	Status         string          `json:"status"`
	Started        *bool           `json:"started"`
	IdempotencyKey string          `json:"idempotency_key"`
	Tool           string          `json:"tool"`
	Step           *int32          `json:"step"`
	Position       *int32          `json:"position"`
	Offset         int64           `json:"-"`
	Fields         map[string]any  `json:"-"`
	Raw            json.RawMessage `json:"-"`
}

// read returns the committed records of a topic in log order, once no transaction is open.
func (b *metaBed) read(topic string) []*kgo.Record {
	b.t.Helper()
	ends := map[int32]int64{}
	b.eventually("no transaction is open on "+topic, 2*time.Minute, func() bool {
		high, err := b.admin.ListEndOffsets(b.t.Context(), topic)
		must(b.t, errors.Join(err, high.Error()))
		stable, err := b.admin.ListCommittedOffsets(b.t.Context(), topic)
		must(b.t, errors.Join(err, stable.Error()))
		same := true
		high.Each(func(o kadm.ListedOffset) {
			l, _ := stable.Lookup(topic, o.Partition)
			same = same && l.Offset == o.Offset
			ends[o.Partition] = o.Offset
		})
		return same
	})
	start := map[string]map[int32]kgo.Offset{topic: {}}
	for p, end := range ends {
		if end == 0 {
			delete(ends, p)
			continue
		}
		start[topic][p] = kgo.NewOffset().AtStart()
	}
	if len(ends) == 0 {
		return nil
	}
	reader, err := b.newClient(newMetaWires(b.network.DialContext), kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	must(b.t, err)
	defer reader.Close()
	var out []*kgo.Record
	for len(ends) > 0 {
		fetches := reader.PollFetches(b.t.Context())
		must(b.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if end, ok := ends[r.Partition]; ok && r.Offset+1 >= end {
				delete(ends, r.Partition)
			}
		})
	}
	slices.SortFunc(out, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

func (b *metaBed) eventually(what string, limit time.Duration, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, p := range b.live {
				s, _ := json.Marshal(p.worker.Status())
				b.t.Logf("%s (ended: %t, %v): %s", p.name, p.hasEnded(), p.err, s)
			}
			b.t.Fatalf("never: %s", what)
		}
	}
}

// handled waits until every offset is committed. Processes that end by themselves are started again, as whoever runs them would.
func (b *metaBed) handled(limit time.Duration, supervise func()) {
	b.t.Helper()
	rounds := 0
	b.eventually("every record is handled", limit, func() bool {
		supervise()
		if rounds++; rounds%600 == 0 {
			b.bury()
		}
		ends, err := b.admin.ListEndOffsets(b.t.Context(), b.turns.Name)
		must(b.t, err)
		committed, err := b.admin.FetchOffsets(b.t.Context(), "meta")
		if err != nil {
			return false
		}
		all := true
		ends.Each(func(o kadm.ListedOffset) {
			c, ok := committed.Lookup(b.turns.Name, o.Partition)
			all = all && (o.Offset == 0 || ok && c.At == o.Offset)
		})
		return all
	})
}

// bury makes members leave that no process is. The broker of the test gives no session to a member whose connection was lost while
// it joined, so that it would hold its partitions for ever.
func (b *metaBed) bury() {
	b.t.Helper()
	alive := map[string]bool{}
	for _, p := range b.live {
		alive[p.worker.Status().Member] = true
	}
	described, err := b.admin.DescribeGroups(b.t.Context(), "meta")
	must(b.t, err)
	b.watch.note(fmt.Sprintf("group %s, members %d", described["meta"].State, len(described["meta"].Members)))
	for _, m := range described["meta"].Members {
		if alive[m.MemberID] {
			continue
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Group, req.Members = "meta", append(req.Members, member)
		_, err := req.RequestWith(b.t.Context(), b.sender)
		must(b.t, err)
	}
}

// dropped are the fields that say when, by whom and how often.
var dropped = []string{"at", "worker", "duration_ms", "attempts", "workers", "seq"}

// outcome reads everything that was committed, and checks what holds for every run by itself.
func (b *metaBed) outcome() *outcome {
	o := &outcome{turns: map[string][]string{}, order: map[string][]string{}, raw: map[string][]metaEvent{}}
	ids, began := map[string]bool{}, map[string]string{}
	for _, topic := range []string{b.turnEvents.Name, b.toolEvents.Name} {
		seqs := map[string]int64{}
		for _, r := range b.read(topic) {
			e := metaEvent{Raw: r.Value, Offset: r.Offset}
			must(b.t, errors.Join(json.Unmarshal(r.Value, &e), json.Unmarshal(r.Value, &e.Fields)))
			if ids[e.EventID] {
				b.t.Errorf("event %s is there twice", e.EventID)
			}
			if string(r.Key) != e.SessionID {
				b.t.Errorf("event %s has key %q", e.EventID, r.Key)
			}
			ids[e.EventID] = true
			text := e.normal()
			if e.Seq == nil {
				o.rejected = append(o.rejected, text)
				continue
			}
			if last, ok := seqs[e.TurnID]; ok && *e.Seq <= last {
				b.t.Errorf("event %s stands behind seq %d", e.EventID, last)
			}
			seqs[e.TurnID] = *e.Seq
			o.raw[e.TurnID] = append(o.raw[e.TurnID], e)
			o.turns[e.TurnID] = append(o.turns[e.TurnID], text)
			switch e.Type {
			case schemas.TypeTurnStart:
				if before := began[e.SessionID]; before != "" {
					b.t.Errorf("turn %s begins before %s of the same session has ended", e.TurnID, before)
				}
				began[e.SessionID] = e.TurnID
				o.order[e.SessionID] = append(o.order[e.SessionID], e.TurnID)
			case schemas.TypeTurnEnd:
				began[e.SessionID] = ""
			}
		}
	}
	for id, events := range o.raw {
		b.whole(id, events)
		slices.Sort(o.turns[id])
	}
	for _, r := range b.read(b.letters.Name) {
		h := map[string]string{}
		for _, header := range r.Headers {
			h[header.Key] = string(header.Value)
		}
		o.letters = append(o.letters, fmt.Sprintf("%s %s/%s/%s %q %q", h["lathe_reason"], h["lathe_topic"], h["lathe_partition"], h["lathe_offset"], r.Key, r.Value))
	}
	slices.Sort(o.letters)
	slices.Sort(o.rejected)
	for p, state := range b.folded() {
		for key := range state {
			if !strings.HasPrefix(key, "a") { // An agent's configuration has the worker's schemas in it; its key is a hash.
				o.keys = append(o.keys, fmt.Sprintf("%d %s", p, key))
			}
		}
	}
	slices.Sort(o.keys)
	return o
}

// normal is the event without what may differ.
func (e *metaEvent) normal() string {
	fields := maps.Clone(e.Fields)
	for _, name := range dropped {
		delete(fields, name)
	}
	text, _ := json.Marshal(fields)
	return e.EventID + " " + string(text)
}

// whole checks one turn: nothing missing, one beginning and one end, each result behind its start, and the ledger agrees.
func (b *metaBed) whole(id string, events []metaEvent) {
	slices.SortFunc(events, func(x, y metaEvent) int { return int(*x.Seq - *y.Seq) })
	starts := map[string]string{}
	for i, e := range events {
		if *e.Seq != int64(i) {
			b.t.Errorf("turn %s: event %d has seq %d", id, i, *e.Seq)
		}
		if (e.Type == schemas.TypeTurnStart) != (i == 0) || (e.Type == schemas.TypeTurnEnd) != (i == len(events)-1) {
			b.t.Errorf("turn %s: event %d of %d is %s", id, i, len(events), e.Type)
		}
		switch e.Type {
		case schemas.TypeToolStart:
			starts[e.IdempotencyKey] = e.Worker
		case schemas.TypeToolResult:
			b.settled(&e, starts)
		}
	}
}

// settled checks one result against the ledger.
func (b *metaBed) settled(e *metaEvent, starts map[string]string) {
	key := e.IdempotencyKey
	who, started := starts[key]
	if e.Started != nil && *e.Started != started {
		b.t.Errorf("result %s says started %t, the events say %t", e.EventID, *e.Started, started)
	}
	b.ledger.mu.Lock()
	ran := b.ledger.starts[key]
	b.ledger.mu.Unlock()
	switch {
	case e.Tool != "charge" && e.Tool != "note" && e.Tool != "spill":
		return
	case e.Tool == "charge" && len(ran) > 1:
		b.t.Errorf("%s ran %d times, in %v", key, len(ran), ran)
	case e.Status == schemas.StatusOK && len(ran) == 0:
		b.t.Errorf("%s has a result and never ran", key)
	case !started && len(ran) > 0:
		b.t.Errorf("%s ran and was never announced", key)
	case e.Status == schemas.StatusIndeterminate:
		if len(ran) > 0 {
			who = ran[0]
		}
		if e.Tool != "charge" || b.watch.clean(who) && len(ran) > 0 || b.watch.allClean() {
			b.t.Errorf("%s is indeterminate although %s let go of nothing", key, who)
		}
	}
}

func (w *metaWatch) clean(process string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unclean[process] == ""
}

func (w *metaWatch) uncleans() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unclean)
}

func (w *metaWatch) allClean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unclean) == 0
}

// folded is the committed changelog: the last value of each key, by partition.
func (b *metaBed) folded() map[int32]map[string]string {
	return kafkatest.Fold(b.read(b.changelog.Name), metaPartitions)
}

// hashes stand at the end of what the model says.
var hashes = regexp.MustCompile(`#[0-9a-f]{8}`)

// compare reports what differs from the run that nothing disturbed. From a turn on that has an indeterminate call or was given up
// as a crash loop, which no turn of the other run is, only the shape of its session is compared: what the model hears is another story.
func (b *metaBed) compare(got, want *outcome, in *metaInputs) (indeterminate int) {
	b.t.Helper()
	b.same("the dead letters", got.letters, want.letters)
	b.same("the rejected turns", got.rejected, want.rejected)
	b.same("the keys of the state", looseless(got.keys), looseless(want.keys))
	for id := range in.turns {
		if len(got.turns[id]) == 0 {
			b.t.Errorf("turn %s is lost", id)
		}
	}
	if len(got.turns) != len(in.turns) {
		b.t.Errorf("%d turns have events, want %d", len(got.turns), len(in.turns))
	}
	for session, order := range want.order {
		b.same("the order of "+session, got.order[session], order)
		tainted := false
		for _, id := range order {
			g, w := got.turns[id], want.turns[id]
			if in.loose[id] {
				b.loosely(id, got.raw[id])
				continue
			}
			if b.crashLoop(id, got.raw[id]) || has(got.raw[id], schemas.StatusIndeterminate) {
				indeterminate++
				tainted = true
				continue
			}
			if tainted {
				g, w = unhashed(g), unhashed(w)
			}
			b.same("turn "+id, g, w)
		}
	}
	return indeterminate
}

// crashLoop reports whether a turn was given up because its workers ended too often while it ran, which has to be so.
func (b *metaBed) crashLoop(id string, events []metaEvent) bool {
	b.t.Helper()
	end := events[len(events)-1]
	if end.Fields["code"] != string(schemas.CodeCrashLoop) {
		return false
	}
	if n := b.watch.uncleans(); n < 3 {
		b.t.Errorf("turn %s ended as a crash loop though only %d workers did", id, n)
	}
	return true
}

// looseless leaves out what a cancel that may come too late leaves in the state or not.
func looseless(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		return strings.Contains(k, "-dragging") && !strings.Contains(k, " t")
	})
}

func unhashed(events []string) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = hashes.ReplaceAllString(e, "#")
	}
	return out
}

func has(events []metaEvent, status string) bool {
	return slices.ContainsFunc(events, func(e metaEvent) bool { return e.Type == schemas.TypeToolResult && e.Status == status })
}

// loosely checks a turn whose cancel may come before, while or after it runs.
func (b *metaBed) loosely(id string, events []metaEvent) {
	b.t.Helper()
	if end := events[len(events)-1]; end.Status != schemas.StatusCompleted && end.Status != schemas.StatusCancelled {
		b.t.Errorf("turn %s ended %s", id, end.Status)
	}
}

func (b *metaBed) same(what string, got, want []string) {
	b.t.Helper()
	if slices.Equal(got, want) {
		return
	}
	b.t.Errorf("%s differs:\n%s", what, difference(got, want))
}

func difference(got, want []string) string {
	var s strings.Builder
	for _, w := range want {
		if !slices.Contains(got, w) {
			fmt.Fprintln(&s, "-", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			fmt.Fprintln(&s, "+", g)
		}
	}
	if s.Len() == 0 {
		return fmt.Sprintf("got %v, want %v", got, want)
	}
	return s.String()
}
