package schemas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"
)

// decodeWith decodes a payload whose writer's schema the registry has under id 1.
func decodeWith(t *testing.T, schema string, payload []byte) error {
	t.Helper()
	d := NewDecoder(DecoderOptions{Registry: &schemaMap{ids: map[int]string{1: schema}}})
	_, err := d.Decode(t.Context(), append([]byte{0, 0, 0, 0, 1}, payload...), nil)
	return err
}

// turnWith is a writer's schema of turn events with one more field, first.
func turnWith(typ string) string {
	return `{"type":"record","name":"TurnEvent","fields":[{"name":"x","type":` + typ + `},{"name":"turn_id","type":"string"}]}`
}

func TestAvro_RefusesSchemasThatCouldHarm(t *testing.T) {
	t.Parallel()
	deep := `"int"`
	for range 100_000 {
		deep = `[` + deep
	}
	// Each type holds the one before twice: a value of the last has 2^40 parts, and none takes a byte.
	doubling := `{"type":"record","name":"T0","fields":[]}`
	for i := range 40 {
		doubling = fmt.Sprintf(`{"type":"record","name":"T%d","fields":[{"name":"a","type":%s},{"name":"b","type":"T%d"}]}`, i+1, doubling, i)
	}
	for _, tc := range []struct{ name, schema string }{
		{"array of null", turnWith(`{"type":"array","items":"null"}`)},
		{"map of null", turnWith(`{"type":"map","values":"null"}`)},
		{"array of an empty record", turnWith(`{"type":"array","items":{"type":"record","name":"E","fields":[]}}`)},
		{"array of a record of nulls", turnWith(`{"type":"array","items":{"type":"record","name":"E","fields":[{"name":"n","type":"null"}]}}`)},
		{"array of fixed 0", turnWith(`{"type":"array","items":{"type":"fixed","name":"F","size":0}}`)},
		{"recursive record", turnWith(`["null","TurnEvent"]`)},
		{"recursive by an array", turnWith(`{"type":"array","items":"TurnEvent"}`)},
		{"too deep", deep},
		{"doubling types", turnWith(doubling)},
		{"too large", turnWith(`"` + strings.Repeat("x", 256<<10) + `"`)},
		{"negative fixed", turnWith(`{"type":"fixed","name":"F","size":-1}`)},
		{"union in a union", turnWith(`["null",["int"]]`)},
		{"branch twice", turnWith(`["int","int"]`)},
		{"empty union", turnWith(`[]`)},
		{"unknown type", turnWith(`"Missing"`)},
		{"type of a number", turnWith(`5`)},
		{"field twice", `{"type":"record","name":"TurnEvent","fields":[{"name":"turn_id","type":"string"},{"name":"turn_id","type":"string"}]}`},
		{"defined twice", turnWith(`{"type":"fixed","name":"TurnEvent","size":1}`)},
		{"no turn_id", `{"type":"record","name":"TurnEvent","fields":[]}`},
		{"turn_id of another type", `{"type":"record","name":"TurnEvent","fields":[{"name":"turn_id","type":"int"}]}`},
		{"another record", `{"type":"record","name":"Order","fields":[{"name":"turn_id","type":"string"}]}`},
		{"no record", `"string"`},
		{"no JSON", `{"type"`},
		{"JSON schema", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`},
		{"protobuf", `syntax = "proto3"; message TurnEvent {}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			err := decodeWith(t, tc.schema, []byte("\x00\x02t"))
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeUndecodable || e.Class != ClassTerminal {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestAvro_RefusesPayloadsThatClaimMoreThanTheyHold(t *testing.T) {
	t.Parallel()
	claim := func(n int64) []byte { return binary.AppendVarint(nil, n) }
	oneByteRecords := append(claim(400_000), make([]byte, 400_000)...)
	nested := `"boolean"`
	for i := range 50 {
		nested = fmt.Sprintf(`{"type":"record","name":"N%d","fields":[{"name":"a","type":%s}]}`, i, nested)
	}
	for _, tc := range []struct { //nolint:paralleltest // They measure memory.
		name, typ string
		payload   []byte
	}{
		{"400 million items in five bytes", `{"type":"array","items":"string"}`, claim(400_000_000)},
		{"10 million map entries", `{"type":"map","values":"string"}`, claim(10_000_000)},
		{"a negative count", `{"type":"array","items":"string"}`, append(claim(-400_000_000), claim(10)...)},
		{"the least count", `{"type":"array","items":"string"}`, append(claim(-1<<63), claim(0)...)},
		{"a block of more bytes than there are", `{"type":"array","items":"string"}`, append(claim(-1), claim(1<<40)...)},
		{"a string of 2 GB", `"string"`, claim(1 << 31)},
		{"bytes of negative length", `"bytes"`, claim(-5)},
		{"a fixed of 1 GB", `{"type":"fixed","name":"F","size":1073741824}`, []byte("abc")},
		{"records that are much larger in memory", `{"type":"array","items":{"type":"record","name":"B","fields":[{"name":"a","type":"boolean"}]}}`, oneByteRecords},
		{"nested records that are larger still", `{"type":"array","items":` + nested + `}`, append(claim(100_000), make([]byte, 100_000)...)},
		{"a branch that does not exist", `["null","string"]`, claim(2)},
		{"a symbol that does not exist", `{"type":"enum","name":"E","symbols":["A"]}`, claim(-1)},
		{"a number of twenty bytes", `"long"`, append(make([]byte, 0), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...)},
		{"an int beyond 32 bits", `"int"`, claim(1 << 40)},
		{"a boolean of 2", `"boolean"`, []byte{2}},
		{"invalid UTF-8", `"string"`, []byte("\x02\xff")},
		{"a map key twice", `{"type":"map","values":"int"}`, []byte("\x04\x02a\x02\x02a\x02\x00")},
		{"bytes left over", `"int"`, []byte("\x02\x02t\x00")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			err := decodeWith(t, turnWith(tc.typ), tc.payload)
			runtime.ReadMemStats(&after)
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeUndecodable {
				t.Errorf("got %v", err)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
				t.Errorf("it took %d MB", got>>20)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestAvro_TakesWhatGoavroChokesOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, typ string
		payload   string
	}{
		// NewCodec panics on the second decimal without a scale.
		{"decimals without scale", `{"type":"record","name":"D","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":4}},{"name":"b","type":{"type":"bytes","logicalType":"decimal","precision":4}}]}`, "\x02\x01\x02\x01"},
		{"a type of a name of goavro's own", `{"type":"enum","name":"int.date","symbols":["A"]}`, "\x00"},
		{"a nested namespace", `{"type":"record","name":"S","namespace":"c.d","fields":[{"name":"e","type":{"type":"fixed","name":"F","size":1}},{"name":"f","type":"F"}]}`, "ab"},
		{"a default that does not fit", `{"type":"record","name":"S","fields":[{"name":"i","type":"int","default":"x"}]}`, "\x02"},
		{"a validated string", `{"type":"string","logicalType":"validated-string","pattern":"^a$"}`, "\x02b"},
		{"attributes of others", `{"type":"string","avro.java.string":"String","__fastavro_parsed__":true}`, "\x02b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := decodeWith(t, turnWith(tc.typ), []byte(tc.payload+"\x02t"))
			// It was read if all that is missing is the messages.
			if e, ok := errors.AsType[*Error](err); !ok || e.Path != "messages" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDecode_APanicIsUndecodable(t *testing.T) {
	t.Parallel()
	d := NewDecoder(DecoderOptions{Registry: panicking{}})
	_, err := d.Decode(t.Context(), []byte{0, 0, 0, 0, 1, 0}, nil)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != CodeUndecodable || strings.Contains(e.Error(), "hunter2") {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(e.Err.Error(), "panicking") {
		t.Error("the stack is lost")
	}
}

func TestGoavro_LimitsAreSet(t *testing.T) {
	t.Parallel()
	if _, err := newGoavroCodec(RecordTurnEvent.parse()); err != nil {
		t.Fatal(err)
	}
	if goavro.MaxBlockCount > maxAvroBlock || goavro.MaxBlockSize > 16<<20 {
		t.Errorf("MaxBlockCount %d, MaxBlockSize %d", goavro.MaxBlockCount, goavro.MaxBlockSize)
	}
}

type panicking struct{ Registry }

func (panicking) SchemaByID(context.Context, int) (string, error) { panic("hunter2") }
