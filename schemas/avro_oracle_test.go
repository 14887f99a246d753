package schemas

import (
	"encoding/binary"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/avro"
)

// oracleSchemas are the schemas on which our canonical form must be that of the specification, and goavro's often is not.
func oracleSchemas() map[string]string {
	m := map[string]string{
		"primitive":            `"int"`,
		"primitive as object":  `{"type":"string"}`,
		"java string":          `{"type":"record","name":"R","fields":[{"name":"s","type":{"type":"string","avro.java.string":"String"}}]}`,
		"logical type":         `{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"},"doc":"x","order":"ignore"}]}`,
		"decimals, no scale":   `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":4}},{"name":"b","type":{"type":"bytes","logicalType":"decimal","precision":4}}]}`,
		"nested namespaces":    `{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"s","type":{"type":"record","name":"S","namespace":"c.d","fields":[{"name":"x","type":{"type":"fixed","name":"F","size":12}},{"name":"y","type":"F"}]}},{"name":"z","type":"c.d.S"}]}`,
		"full name":            `{"type":"record","name":"a.b.R","namespace":"ignored","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}},{"name":"f","type":["null","E"],"default":null}]}`,
		"containers":           `{"type":"map","values":{"type":"array","items":["null",{"type":"map","values":"double"},"bytes","boolean","float"]}}`,
		"error":                `{"type":"error","name":"R","aliases":["Q"],"fields":[]}`,
		"name like a goavro's": `{"type":"record","name":"R","fields":[{"name":"d","type":{"type":"enum","name":"int.date","symbols":["A"]}},{"name":"e","type":{"type":"int","logicalType":"date"}}]}`,
		"field named type":     `{"type":"record","name":"R","fields":[{"name":"type","type":"string"},{"name":"name","type":{"type":"array","items":"string"}}]}`,
	}
	for _, r := range Records() {
		m[string(r)] = r.Schema()
	}
	return m
}

func TestCanonical_IsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	for name, text := range oracleSchemas() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseAvroSchema(text, schemaLimits{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := avro.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, got.canonical(), string(want.Canonical()))
			wantEqual(t, got.fingerprint(), binary.BigEndian.Uint64(want.Fingerprint(avro.NewRabin())))
			if _, err := newGoavroCodec(got); err != nil {
				t.Errorf("goavro: %v", err)
			}
		})
	}
}

func TestFingerprint_IsTheSpecificationsExample(t *testing.T) {
	t.Parallel()
	s, err := parseAvroSchema("int", schemaLimits{})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, s.fingerprint(), uint64(0x7275d51a3f395c8f))
}

// plain undoes the oracle's reading of logical types.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.UnixMilli()
	case *big.Rat:
		return nil
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

func wantSameValue(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-oracle +ours):\n%s", diff)
	}
}

func TestAvro_TheOracleReadsWhatWeWrite(t *testing.T) {
	t.Parallel()
	e, err := NewEncoder(EncodingAvroSingle, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	turns, err := NewTurnEncoder(EncodingAvroSingle, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events := outputs()
	events["turn"] = sampleTurn()
	for name, ev := range events {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b []byte
			if turn, ok := ev.(*TurnEvent); ok {
				if b, err = turns.Encode(turn); err != nil {
					t.Fatal(err)
				}
			} else {
				b = encodeAny(t, e, ev)
			}
			theirs := avro.MustParse(recordOf(ev).Schema())
			var want any
			if rest, err := theirs.DecodeSingleObject(b, &want); err != nil || len(rest) > 0 {
				t.Fatalf("the oracle: %v, %d left", err, len(rest))
			}
			got := projectOnto(t, recordOf(ev).Schema(), recordOf(ev).Schema(), b[10:])
			wantSameValue(t, got, plain(want))

			// And the other way round.
			back, err := theirs.AppendSingleObject(nil, want)
			if err != nil {
				t.Fatal(err)
			}
			wantSameValue(t, projectOnto(t, recordOf(ev).Schema(), recordOf(ev).Schema(), back[10:]), plain(want))
		})
	}
}

// projectOnto reads binary of a writer's schema into the reader's shape.
func projectOnto(t *testing.T, writer, reader string, b []byte) any {
	t.Helper()
	v, err := tryProject(writer, reader, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func tryProject(writer, reader string, b []byte) (any, error) {
	w, err := parseAvroSchema(writer, schemaLimits{})
	if err != nil {
		return nil, err
	}
	r, err := parseAvroSchema(reader, schemaLimits{})
	if err != nil {
		return nil, err
	}
	project, err := resolveAvro(w, r)
	if err != nil {
		return nil, err
	}
	if err := walkAvro(w, b, 1<<17); err != nil {
		return nil, err
	}
	codec, err := newGoavroCodec(w)
	if err != nil {
		return nil, err
	}
	v, err := codec.decode(b)
	if err != nil {
		return nil, err
	}
	return project(v)
}

// oneField makes a record schema with one field.
func oneField(typ string) string {
	return `{"type":"record","name":"R","fields":[{"name":"f","type":` + typ + `}]}`
}

func TestResolve_DoesWhatTheOracleDoes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, writer, reader string
		value                any
	}{
		{"int to long", oneField(`"int"`), oneField(`"long"`), map[string]any{"f": int32(-7)}},
		{"int to float", oneField(`"int"`), oneField(`"float"`), map[string]any{"f": int32(7)}},
		{"int to double", oneField(`"int"`), oneField(`"double"`), map[string]any{"f": int32(7)}},
		{"long to float", oneField(`"long"`), oneField(`"float"`), map[string]any{"f": int64(1 << 40)}},
		{"long to double", oneField(`"long"`), oneField(`"double"`), map[string]any{"f": int64(1<<53 + 1)}},
		{"float to double", oneField(`"float"`), oneField(`"double"`), map[string]any{"f": float32(0.1)}},
		{"string to bytes", oneField(`"string"`), oneField(`"bytes"`), map[string]any{"f": "é"}},
		{"bytes to string", oneField(`"bytes"`), oneField(`"string"`), map[string]any{"f": []byte("é")}},
		{"long to int is none", oneField(`"long"`), oneField(`"int"`), map[string]any{"f": int64(7)}},
		{"string to int is none", oneField(`"string"`), oneField(`"int"`), map[string]any{"f": "7"}},
		{"plain to union", oneField(`"string"`), oneField(`["null","string"]`), map[string]any{"f": "x"}},
		{"plain to union by promotion", oneField(`"int"`), oneField(`["null","double","long"]`), map[string]any{"f": int32(3)}},
		{"exact branch before promotion", oneField(`"int"`), oneField(`["double","int"]`), map[string]any{"f": int32(3)}},
		{"union to union", oneField(`["string","null"]`), oneField(`["null","bytes","string"]`), map[string]any{"f": "x"}},
		{"union of null", oneField(`["string","null"]`), oneField(`["null","string"]`), map[string]any{"f": nil}},
		{"union to plain", oneField(`["int","long"]`), oneField(`"long"`), map[string]any{"f": int64(5)}},
		{"no branch", oneField(`"boolean"`), oneField(`["null","string"]`), map[string]any{"f": true}},
		{
			"alias", `{"type":"record","name":"R","fields":[{"name":"old","type":"int"},{"name":"gone","type":"bytes"}]}`,
			`{"type":"record","name":"R","fields":[{"name":"f","aliases":["old"],"type":"double"},{"name":"d","type":{"type":"map","values":"long"},"default":{"a":1}}]}`,
			map[string]any{"old": int32(4), "gone": []byte{1}},
		},
		{"record alias", `{"type":"record","name":"x.Old","fields":[]}`, `{"type":"record","name":"y.New","aliases":["x.Old"],"fields":[]}`, map[string]any{}},
		{"bare record alias", `{"type":"record","name":"x.Old","fields":[]}`, `{"type":"record","name":"y.New","aliases":["Old"],"fields":[]}`, map[string]any{}},
		{"foreign record alias", `{"type":"record","name":"x.Old","fields":[]}`, `{"type":"record","name":"y.New","aliases":["z.Old"],"fields":[]}`, map[string]any{}},
		{"other namespace", `{"type":"record","name":"x.R","fields":[]}`, `{"type":"record","name":"y.R","fields":[]}`, map[string]any{}},
		{"other name", `{"type":"record","name":"R","fields":[]}`, `{"type":"record","name":"S","fields":[]}`, map[string]any{}},
		{"no default", `{"type":"record","name":"R","fields":[]}`, oneField(`"int"`), map[string]any{}},
		{"enum with default", oneField(`{"type":"enum","name":"E","symbols":["A","B"]}`), oneField(`{"type":"enum","name":"E","symbols":["C","A"],"default":"C"}`), map[string]any{"f": "B"}},
		{"enum reordered", oneField(`{"type":"enum","name":"E","symbols":["A","B"]}`), oneField(`{"type":"enum","name":"E","symbols":["B","A"]}`), map[string]any{"f": "B"}},
		{"fixed", oneField(`{"type":"fixed","name":"F","size":3}`), oneField(`{"type":"fixed","name":"F","size":3}`), map[string]any{"f": []byte("abc")}},
		{"fixed of another size", oneField(`{"type":"fixed","name":"F","size":3}`), oneField(`{"type":"fixed","name":"F","size":4}`), map[string]any{"f": []byte("abc")}},
		{"fixed by size in a union", oneField(`{"type":"fixed","name":"a.F","size":3}`), oneField(`[{"type":"fixed","name":"b.F","size":4},{"type":"fixed","name":"c.F","size":3}]`), map[string]any{"f": []byte("abc")}},
		{
			"array of maps", oneField(`{"type":"array","items":{"type":"map","values":"int"}}`), oneField(`{"type":"array","items":{"type":"map","values":"long"}}`),
			map[string]any{"f": []any{map[string]any{"a": int32(1)}, map[string]any{}}},
		},
		{
			"record in a union", oneField(`["null",{"type":"record","name":"n.S","fields":[{"name":"a","type":"int"}]}]`),
			oneField(`["null",{"type":"record","name":"m.S","fields":[{"name":"a","type":"long"},{"name":"b","type":["null","int"],"default":null}]}]`),
			map[string]any{"f": map[string]any{"a": int32(1)}},
		},
		{
			"defaults of all kinds", `{"type":"record","name":"R","fields":[]}`,
			`{"type":"record","name":"R","fields":[{"name":"a","type":"bytes","default":"\u00ff"},{"name":"b","type":["string","null"],"default":"x"},
			{"name":"c","type":{"type":"array","items":"int"},"default":[1]},{"name":"d","type":"float","default":1.5},{"name":"e","type":"boolean","default":true},
			{"name":"f","type":{"type":"record","name":"S","fields":[{"name":"x","type":"long","default":9007199254740993},{"name":"y","type":"null"}]},"default":{"y":null}},
			{"name":"g","type":{"type":"enum","name":"E","symbols":["A"]},"default":"A"},{"name":"h","type":{"type":"fixed","name":"F","size":2},"default":"ab"},{"name":"i","type":"int","default":-3}]}`,
			map[string]any{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			writer, reader := avro.MustParse(tc.writer), avro.MustParse(tc.reader)
			b, err := writer.Encode(tc.value)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tryProject(tc.writer, tc.reader, b)
			resolved, theirErr := avro.Resolve(writer, reader)
			if theirErr != nil {
				if err == nil {
					t.Fatalf("got %v, the oracle refuses: %v", got, theirErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if _, err := resolved.Decode(b, &want); err != nil {
				t.Fatal(err)
			}
			wantSameValue(t, got, plain(want))
		})
	}
}

func TestResolve_RefusesABranchOnlyWhenItComes(t *testing.T) {
	t.Parallel()
	// Producers that generate their schemas often make every field nullable. The oracle refuses such a pair as a whole.
	writer, reader := oneField(`["null","string"]`), oneField(`"string"`)
	wantEqual(t, projectOnto(t, writer, reader, []byte("\x02\x02x")), any(map[string]any{"f": "x"}))
	if v, err := tryProject(writer, reader, []byte("\x00")); err == nil {
		t.Errorf("a null became %v", v)
	}
}

func TestResolve_ConvertsUnitsOfTime(t *testing.T) {
	t.Parallel()
	reader := oneField(`{"type":"long","logicalType":"timestamp-millis"}`)
	for _, tc := range []struct {
		name, unit string
		sent, want int64
	}{
		{"micros", "timestamp-micros", 1_234_567, 1234},
		{"nanos", "timestamp-nanos", 1_234_567_891, 1234},
		{"before 1970", "timestamp-micros", -1, -1},
		{"millis", "timestamp-millis", 1234, 1234},
		{"no unit", "unknown", 1234, 1234},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			writer := oneField(`{"type":"long","logicalType":"` + tc.unit + `"}`)
			got := projectOnto(t, writer, reader, binary.AppendVarint(nil, tc.sent))
			wantEqual(t, got, any(map[string]any{"f": tc.want}))
		})
	}
}

// FuzzAvroDecode compares with the oracle: what it takes, we take, with the same value.
func FuzzAvroDecode(f *testing.F) {
	turn := RecordTurnEvent.parse()
	codec, err := newGoavroCodec(turn)
	if err != nil {
		f.Fatal(err)
	}
	project, err := resolveAvro(turn, turn)
	if err != nil {
		f.Fatal(err)
	}
	theirs := avro.MustParse(RecordTurnEvent.Schema())
	var faults rawFaults
	seed, err := codec.append(nil, nativeTurnEvent(sampleTurn(), &faults))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("\x08turn\x02t\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if walkAvro(turn, b, 1<<17) != nil {
			return
		}
		v, err := codec.decode(b)
		if err != nil {
			return // Such as a map with a key twice.
		}
		got, err := project(v)
		if err != nil {
			t.Fatal(err)
		}
		var want any
		rest, err := theirs.Decode(b, &want)
		if err != nil || len(rest) > 0 {
			t.Fatalf("the oracle: %v, %d left", err, len(rest))
		}
		wantSameValue(t, got, plain(want))
	})
}

// FuzzAvroSchema compares with the oracle on any schema that we take: what we take, it takes, with the same canonical form.
func FuzzAvroSchema(f *testing.F) {
	for _, s := range oracleSchemas() {
		if len(s) < 1000 {
			f.Add(s)
		}
	}
	f.Add(`{"type":"array","items":"null"}`)
	f.Add(`{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		ours, err := parseAvroSchema(text, schemaLimits{})
		if err != nil {
			return
		}
		if _, err := newGoavroCodec(ours); err != nil {
			t.Errorf("goavro: %v", err)
		}
		if _, err := resolveAvro(ours, ours); err != nil && !hasBadDefault(text) {
			t.Errorf("to itself: %v", err)
		}
		theirs, err := avro.Parse(text)
		if err != nil {
			return // The oracle also checks defaults, aliases and logical types, which do not matter to a writer's schema.
		}
		wantEqual(t, ours.canonical(), string(theirs.Canonical()))
	})
}

func hasBadDefault(text string) bool { _, err := avro.Parse(text); return err != nil }

func TestAvroSchema_TakesDeepTextAtTheLimit(t *testing.T) {
	t.Parallel()
	text := `"int"`
	for range 63 {
		text = `{"type":"array","items":` + text + `}`
	}
	if _, err := parseAvroSchema(text, schemaLimits{}); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	if _, err := parseAvroSchema(`{"type":"array","items":`+text+`}`, schemaLimits{}); err == nil {
		t.Error("65 levels were taken")
	}
}
