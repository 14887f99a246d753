package app

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// registryOf is a schema registry that has one schema, or none if it is empty.
type registryOf string

func (r registryOf) SchemaByID(context.Context, int) (string, error) {
	if r == "" {
		return "", schemas.Errorf(schemas.CodeSchemaUnknown, "no such schema")
	}
	return string(r), nil
}

func (r registryOf) SchemaByGUID(ctx context.Context, _ string) (string, error) {
	return r.SchemaByID(ctx, 0)
}

// unreadable is a change of settings, or of what is outside, after which the record of a turn cannot be read any more.
type unreadable struct {
	name     string
	encoding schemas.Encoding
	turn     func(ev *schemas.TurnEvent)
	before   schemas.DecoderOptions
	after    func(c *counter)
	// letter is the reason of the dead letter that the same record is at another place, told whether turn:rejected goes beside it.
	letter string
	told   bool
}

func deepSchema(ev *schemas.TurnEvent) {
	ev.OutputSchema = []byte(`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"string"}}}}}`)
}

func unreadables() []unreadable {
	return []unreadable{
		{
			name: "it is larger than the limit", encoding: schemas.EncodingJSON,
			turn:   func(ev *schemas.TurnEvent) { ev.Messages[0].Text = strings.Repeat("x", 40<<10) },
			after:  func(c *counter) { c.recordBytes = 32 << 10 },
			letter: "too_large",
		},
		{
			name: "its JSON is deeper than the limit", encoding: schemas.EncodingJSON, turn: deepSchema,
			after:  func(c *counter) { c.decoding.MaxDepth = 4 },
			letter: "undecodable",
		},
		{
			name: "the JSON in its Avro is deeper than the limit", encoding: schemas.EncodingAvroSingle, turn: deepSchema,
			after:  func(c *counter) { c.decoding.MaxDepth = 4 },
			letter: "invalid_turn", told: true,
		},
		{
			name: "it has more values than the limit", encoding: schemas.EncodingAvroSingle, turn: func(*schemas.TurnEvent) {},
			after:  func(c *counter) { c.decoding.MaxValues = 2 },
			letter: "undecodable",
		},
		{
			name: "the registry no longer has its schema", encoding: schemas.EncodingAvro, turn: func(*schemas.TurnEvent) {},
			before: schemas.DecoderOptions{Registry: registryOf(schemas.RecordTurnEvent.Schema())},
			after:  func(c *counter) { c.decoding.Registry = registryOf("") },
			letter: "schema_unknown",
		},
	}
}

// deployed gives the bed what was so when the turn began.
func (u *unreadable) deployed(t *testing.T) *counter {
	t.Helper()
	c := newCounter(t, "clerk")
	c.decoding = u.before
	return c
}

// changed deploys what makes the record unreadable.
func (u *unreadable) changed(c *counter) {
	u.after(c)
	c.deploy("clerk")
}

// send sends the turn in its encoding.
func (u *unreadable) send(c *counter) {
	c.t.Helper()
	ev := turnOf("clerk", "t", "s")
	u.turn(ev)
	value, headers, err := schemas.EncodeTurnEvent(ev, u.encoding, schemas.EncoderOptions{Record: schemas.RecordTurnEvent, SchemaID: 1})
	must(c.t, err)
	rec := &kgo.Record{Topic: "turns", Key: []byte(ev.SessionID), Value: value}
	for _, h := range headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	must(c.t, c.client.ProduceSync(c.t.Context(), rec).FirstErr())
}

// A turn under way whose record cannot be read any more after a restart ended as a dead letter: its offset was done, and its call in
// doubt had no result until somebody happened to take the partition again. It goes on from its journal, in its place in the session.
// The same record elsewhere on the topic is no part of it.
func TestUnreadable_ATurnUnderWayEnds(t *testing.T) {
	t.Parallel()
	for _, u := range unreadables() {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := u.deployed(t)
				c.killedWhile(func() { u.send(c) })
				c.send(turnOf("clerk", "next", "s"))
				u.changed(c)
				c.open.Store(true)
				w := c.start()
				c.handled()
				both := once()
				for typ, n := range map[string]int{schemas.TypeTurnStart: 1, schemas.TypeTurnStep: 2, schemas.TypeToolStart: 1, schemas.TypeToolResult: 1, schemas.TypeTurnEnd: 1} {
					both[typ] += n
				}
				c.wantOutputs(both)
				if diff := cmp.Diff([]string{"turn:start t", "turn:end t", "turn:start next", "turn:end next"}, c.bounds()); diff != "" {
					t.Errorf("the session's turns (-want +got):\n%s", diff)
				}
				u.send(c)
				c.handled()
				both["dead letter "+u.letter] = 1
				if u.told {
					both[schemas.TypeTurnRejected] = 1
				}
				c.wantOutputs(both)
				must(t, w.stop())
				c.start()
				c.handled()
				c.wantOutputs(both)
			})
		})
	}
}

// bounds are the starts, ends and rejections of turns, in the order of their partitions.
func (c *counter) bounds() []string {
	c.t.Helper()
	var out []string
	c.committed(func(r *kgo.Record) {
		var ev schemas.TurnOutput
		must(c.t, json.Unmarshal(r.Value, &ev))
		if ev.Type != schemas.TypeTurnStep {
			out = append(out, ev.Type+" "+ev.TurnID)
		}
	}, "turn-events")
	return out
}

// A record of a topic that was made anew is not that of the turn which stood at its place before.
func TestUnreadable_ARecordOfATopicMadeAnewIsADeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, "clerk")
		c.killedWhilePaying(turnOf("clerk", "t", "s"))
		c.turnsAnew()
		must(t, c.connect().ProduceSync(t.Context(), &kgo.Record{Topic: "turns", Key: []byte("s"), Value: []byte("no JSON")}).FirstErr())
		c.start()
		c.handled()
		c.until("the turn ends", func() bool {
			c.poll()
			return c.ended["t"] != nil
		})
		want := once()
		want["dead letter undecodable"] = 1
		c.wantOutputs(want)
	})
}
