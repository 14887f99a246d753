package e2e_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// TestBadInput_EachIsADeadLetterWithItsReason sends what should never be on the topic, between turns on every partition.
func TestBadInput_EachIsADeadLetterWithItsReason(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns("max.message.bytes", "16000000")
	registry := b.withRegistry()
	w := b.start("w-0")
	r := b.reader()
	b.sendAround("before")
	b.sendNoise()
	b.sendMisplaced()
	b.sendBombs(registry)
	b.sendOddHeaders()
	b.sendAround("after")
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
}

// sendAround sends a turn to every partition.
func (b *bed) sendAround(when string) {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.send(named("both-"+when+"-", p), keyFor(p))
	}
}

// named is an id with the number of a partition.
func named(prefix string, p int32) string { return fmt.Sprintf("%s%d", prefix, p) }

// keyFor is a session whose partition is p.
func keyFor(p int32) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("session-%d", n); partitionOf(key) == p {
			return key
		}
	}
}

// sendNoise sends 10 MB of random bytes, in one record and in many.
func (b *bed) sendNoise() {
	b.Helper()
	seed := rand.Uint64()
	b.Logf("the seed of the random bytes is %d", seed)
	random := rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed)))
	noise := func(n int) []byte {
		out := make([]byte, n)
		_, err := random.Read(out)
		b.must(err)
		return out
	}
	b.sendBad("10 MB of random bytes", &kgo.Record{Key: []byte("x"), Value: noise(10 << 20), Partition: 1}, "too_large")
	for n := range 40 {
		b.sendBad("256 KB of random bytes", &kgo.Record{Key: []byte("x"), Value: noise(256 << 10), Partition: int32(n) % turnPartitions},
			"undecodable", "schema_unknown")
	}
	for n := range 100 {
		b.sendBad("a few random bytes", &kgo.Record{Key: noise(n % 9), Value: noise(n), Partition: int32(n) % turnPartitions},
			"undecodable", "schema_unknown")
	}
}

// sendMisplaced sends records that are well formed, or nothing, where they should not be.
func (b *bed) sendMisplaced() {
	b.Helper()
	value := func(id string) []byte {
		ev, _ := turn(id, "ann")
		raw, err := json.Marshal(ev)
		b.must(err)
		return raw
	}
	at, other := partitionOf("ann"), (partitionOf("ann")+1)%turnPartitions
	b.sendBad("a tombstone", &kgo.Record{Key: []byte("ann"), Partition: at}, "tombstone")
	b.sendBad("a record without a key", &kgo.Record{Value: value("hello-no-key"), Partition: at}, "key_mismatch")
	b.sendBad("an empty key", &kgo.Record{Key: []byte{}, Value: value("hello-empty-key"), Partition: at}, "key_mismatch")
	b.sendBad("another's key", &kgo.Record{Key: []byte("ben"), Value: value("hello-key"), Partition: partitionOf("ben")}, "key_mismatch")
	b.sendBad("a wrong partition", &kgo.Record{Key: []byte("ann"), Value: value("hello-partition"), Partition: other}, "partition_mismatch")
	large, _ := turn("hello-large", "ann")
	large.Messages[0].Text = strings.Repeat("x", 2<<20)
	raw, err := json.Marshal(large)
	b.must(err)
	b.sendBad("a turn of 2 MB", &kgo.Record{Key: []byte("ann"), Value: raw, Partition: at}, "too_large")
	for _, text := range []string{
		`{`, `{}`, `[]`, `null`, `{"turn_id":""}`, `{"turn_id":"a/b","messages":[{"role":"user","content":"x"}]}`,
		`{"turn_id":"hello-role","session_id":"ann","messages":[{"role":"tool","content":"x"}]}`,
		`{"turn_id":"hello-budget","session_id":"ann","messages":[{"role":"user","content":"x"}],"budget":{"tokens":1}}`,
		`{"turn_id":"hello-none","session_id":"ann"}`,
		`{"type":"explode","turn_id":"hello-type","session_id":"ann","messages":[{"role":"user","content":"x"}]}`,
	} {
		b.sendBad(text, &kgo.Record{Key: []byte("ann"), Value: []byte(text), Partition: at}, "undecodable", "invalid_turn")
	}
	unknown, _ := turn("hello-agent", "ann")
	unknown.Agent = "nobody"
	raw, err = json.Marshal(unknown)
	b.must(err)
	b.sendBad("an agent that nobody knows", &kgo.Record{Key: []byte("ann"), Value: raw, Partition: at}, "unknown_agent")
}

// sendOddHeaders sends turns whose headers are double, empty or strange; they complete.
func (b *bed) sendOddHeaders() {
	b.Helper()
	for n, headers := range [][]kgo.RecordHeader{
		{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}},
		{{Key: ""}, {Key: "", Value: []byte{}}, {Key: "b"}},
		{{Key: "content-type"}, {Key: "traceparent", Value: []byte("nonsense")}, {Key: "tracestate"}},
		{{Key: "traceparent"}, {Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}},
		{{Key: "__value_schema_id"}, {Key: "lathe_reason", Value: []byte("conflict")}},
	} {
		id := fmt.Sprintf("hello-headers-%d", n)
		ev, expected := turn(id, "ann")
		raw, err := json.Marshal(ev)
		b.must(err)
		b.produce(&kgo.Record{Key: []byte("ann"), Value: raw, Headers: headers})
		b.sent = append(b.sent, expected)
	}
}

// singleObject frames an Avro payload with the fingerprint of our own schema of turn events.
func singleObject(payload []byte) []byte {
	out := binary.LittleEndian.AppendUint64([]byte{0xc3, 0x01}, schemas.RecordTurnEvent.Fingerprint())
	return append(out, payload...)
}
