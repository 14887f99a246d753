package oracle

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// deadLetters: exactly the bad records, each with its reason, its place and its bytes.
func (j *judge) deadLetters() {
	want, turns := make(map[string]DeadLetter), make(map[string]string)
	for _, d := range j.Bad {
		want[fmt.Sprintf("%d:%d", d.Partition, d.Offset)] = d
	}
	for _, in := range j.Inputs {
		turns[fmt.Sprintf("%d:%d", in.Partition, in.Offset)] = in.Turn
	}
	for _, rec := range j.Letters {
		at := header(rec, "lathe_partition") + ":" + header(rec, "lathe_offset")
		d, ok := want[at]
		if !ok {
			j.fault(DeadLetters, "dead letter of %s (%s: %s) was not expected, or came twice", at, header(rec, "lathe_reason"), header(rec, "lathe_detail"))
			if s := j.turns[turns[at]]; s != nil {
				s.letter = true
			}
			continue
		}
		delete(want, at)
		j.deadLetter(d, rec)
	}
	for at, d := range want {
		if j.done() {
			j.fault(DeadLetters, "%s at %s: no dead letter", d.What, at)
		}
	}
}

func (j *judge) deadLetter(d DeadLetter, rec *kgo.Record) {
	if reason := header(rec, "lathe_reason"); !slices.Contains(d.May, reason) {
		j.fault(DeadLetters, "%s: dead letter for %s (%s), want %v", d.What, reason, header(rec, "lathe_detail"), d.May)
	}
	if header(rec, "lathe_topic") != j.Topic || header(rec, "lathe_detail") == "" || header(rec, "lathe_at") == "" {
		j.fault(DeadLetters, "%s: the dead letter has the headers %v", d.What, rec.Headers)
	}
	whole := header(rec, "lathe_cut") == ""
	switch {
	case whole && !bytes.Equal(rec.Value, d.Value):
		j.fault(DeadLetters, "%s: the dead letter holds %d bytes that are not the record's", d.What, len(rec.Value))
	case !whole && (!bytes.HasPrefix(d.Value, rec.Value) || header(rec, "lathe_value_bytes") != strconv.Itoa(len(d.Value))):
		j.fault(DeadLetters, "%s: the dead letter holds %d of %d bytes, says %s", d.What, len(rec.Value), len(d.Value), header(rec, "lathe_value_bytes"))
	}
}

// offsets: all that was sent is done, and the last worker said that it left nothing in flight.
func (j *judge) offsets() {
	if !j.done() {
		return
	}
	for _, p := range slices.Sorted(maps.Keys(j.Ends)) {
		end := j.Ends[p]
		c, ok := j.Committed[p]
		switch {
		case !ok && end > 0:
			j.fault(OffsetPrefix, "partition %d has %d records and no committed offset", p, end)
		case !ok:
		case c.At != end:
			j.fault(OffsetPrefix, "partition %d: committed offset %d, want %d", p, c.At, end)
		case !c.Clean:
			j.fault(CleanStop, "partition %d: the metadata of the committed offset is %q, want one that says clean", p, c.Metadata)
		}
	}
}

// prefix: at no time was an offset committed beyond a record that was not done. A record is done in the transaction that commits
// its offset, so when the offset is seen the turn's end is below the end of its log.
func (j *judge) prefix() {
	ends := make(map[string]*kgo.Record)
	for _, o := range j.Outputs {
		if o.Env.Type == schemas.TypeTurnEnd {
			ends[o.Env.TurnID] = o.Rec
		}
	}
	for _, in := range j.Inputs {
		s := j.turns[in.Turn]
		if in.Turn == "" || s == nil || s.letter {
			continue
		}
		i := sort.Search(len(j.Samples), func(i int) bool { return j.Samples[i].Committed[in.Partition] > in.Offset })
		if i == len(j.Samples) {
			continue
		}
		end := ends[in.Turn]
		switch {
		case end == nil:
			if !j.done() { // Else it is told as lost.
				j.fault(OffsetPrefix, "offset %d of partition %d was committed with turn %s at %d, which has no end", j.Samples[i].Committed[in.Partition], in.Partition, in.Turn, in.Offset)
			}
		case end.Offset >= j.Samples[i].TurnEvents[end.Partition]:
			j.fault(OffsetPrefix, "offset %d of partition %d was committed before the end of turn %s at %d was written (%s)",
				j.Samples[i].Committed[in.Partition], in.Partition, in.Turn, in.Offset, place(end))
		}
	}
}

// state: folded, the changelog has a record of each ended turn and no journal.
func (j *judge) state() {
	lives := make(map[string]bool)
	for _, rec := range j.Changelog {
		lives[string(rec.Key)] = rec.Value != nil
	}
	for key, live := range lives {
		if live && key[0] == 'j' && j.done() {
			j.fault(State, "the changelog still has the journal record %q", key)
		}
	}
	for _, s := range j.Sent {
		if j.turns[s.ID].ends > 0 && !lives["t"+s.ID] {
			j.fault(State, "the changelog has no record of turn %s", s.ID)
		}
	}
}

// local: what a worker has on its disk is the fold of the committed changelog up to where it says that it stands.
func (j *judge) local() {
	logs := make(map[int32][]*kgo.Record)
	for _, rec := range j.Changelog {
		logs[rec.Partition] = append(logs[rec.Partition], rec)
	}
	for _, l := range j.Local {
		j.compare(l, fold(logs[l.Partition], l.Next))
	}
}

// fold is what records below an offset come to.
func fold(log []*kgo.Record, next int64) map[string][]byte {
	out := make(map[string][]byte)
	for _, rec := range log {
		if rec.Offset >= next {
			break
		}
		if rec.Value == nil {
			delete(out, string(rec.Key))
		} else {
			out[string(rec.Key)] = rec.Value
		}
	}
	return out
}

func (j *judge) compare(l Local, want map[string][]byte) {
	var faults []string
	for key, value := range want {
		switch have, ok := l.Values[key]; {
		case !ok:
			faults = append(faults, fmt.Sprintf("%q is missing", key))
		case !bytes.Equal(have, value):
			faults = append(faults, fmt.Sprintf("%q has %d bytes that are not the %d committed ones", key, len(have), len(value)))
		}
	}
	for key := range l.Values {
		if _, ok := want[key]; !ok {
			faults = append(faults, fmt.Sprintf("%q was never committed, or is deleted", key))
		}
	}
	if len(faults) > 0 {
		sort.Strings(faults)
		j.fault(State, "worker %s, partition %d at changelog offset %d: %d of %d keys differ from the changelog: %v",
			l.Worker, l.Partition, l.Next, len(faults), len(want), shortened(faults))
	}
}
