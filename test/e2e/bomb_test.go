package e2e_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/lathe-run/lathe/schemas"
)

// withRegistry starts a Schema Registry and points the workers at it.
func (b *bed) withRegistry() *srfake.Registry {
	b.Helper()
	r := srfake.New()
	b.Cleanup(r.Close)
	b.settings["LATHE_SCHEMA_REGISTRY_URL"] = r.URL()
	return r
}

// registrySchemas lets a decoder of the test read what the registry has.
type registrySchemas struct{ client *sr.Client }

func (r registrySchemas) SchemaByID(ctx context.Context, id int) (string, error) {
	s, err := r.client.SchemaByID(ctx, id)
	return s.Schema, err
}

func (r registrySchemas) SchemaByGUID(context.Context, string) (string, error) {
	return "", schemas.Errorf(schemas.CodeSchemaUnknown, "the test has no GUIDs")
}

// turnWith is a writer's schema of turn events with one more field, first.
func turnWith(typ string) string {
	return `{"type":"record","name":"TurnEvent","fields":[{"name":"x","type":` + typ + `},{"name":"turn_id","type":"string"}]}`
}

// sendBombs sends what makes decoders allocate, recurse or panic.
func (b *bed) sendBombs(registry *srfake.Registry) {
	b.Helper()
	claim := func(n int64) []byte { return binary.AppendVarint(nil, n) }
	nulls := []byte{}
	for range 200 { // Items that take no byte: 601 bytes that stand for 20 million values.
		nulls = append(nulls, claim(100_000)...)
	}
	deep := strings.Repeat("\x02", 1<<19)
	decimal := `{"type":"bytes","logicalType":"decimal","precision":4}`
	for n, bomb := range []struct {
		what, schema string
		payload      []byte
	}{
		{"400 million items in five bytes", turnWith(`{"type":"array","items":"string"}`), claim(400_000_000)},
		{"10 million map entries", turnWith(`{"type":"map","values":"string"}`), claim(10_000_000)},
		{"a negative block count", turnWith(`{"type":"array","items":"string"}`), append(claim(-400_000_000), claim(10)...)},
		{"20 million nulls", turnWith(`{"type":"array","items":"null"}`), append(nulls, 0)},
		{"a million empty records", turnWith(`{"type":"array","items":{"type":"record","name":"E","fields":[]}}`), append(claim(1_000_000), 0)},
		{"a schema that recurses, half a million levels", turnWith(`["null","TurnEvent"]`), []byte(deep)},
		{"a string of 2 GB", turnWith(`"string"`), claim(1 << 31)},
		{"a fixed of 1 GB", turnWith(`{"type":"fixed","name":"F","size":1073741824}`), []byte("abc")},
		{
			"two decimals without scale", turnWith(`{"type":"record","name":"D","fields":[{"name":"a","type":` + decimal + `},{"name":"b","type":` + decimal + `}]}`),
			[]byte("\x02\x01\x02\x01\x02t"),
		},
		{"bytes left over", turnWith(`"int"`), []byte("\x02\x02t\x00")},
		{"invalid UTF-8", turnWith(`"string"`), []byte("\x02\xff\x02t")},
	} {
		id := n + 1
		registry.SeedSchema(fmt.Sprintf("bomb-%d-value", id), 1, id, sr.Schema{Schema: bomb.schema})
		framed := append([]byte{0, 0, 0, 0, byte(id)}, bomb.payload...)
		b.sendBad(bomb.what, &kgo.Record{Key: []byte("x"), Value: framed, Partition: int32(n) % turnPartitions}, "undecodable", "invalid_turn")
	}
	for n, bomb := range []struct {
		what  string
		value []byte
		may   []string
	}{
		{"a schema that does not exist", []byte{0, 0, 0, 0x7f, 0xff, 0}, []string{"schema_unknown"}},
		{"a fingerprint that does not exist", append([]byte{0xc3, 0x01}, make([]byte, 12)...), []string{"schema_unknown"}},
		{"half a header", []byte{0xc3, 0x01, 1}, []string{"undecodable"}},
		{"single-object, cut off", singleObject([]byte{8}), []string{"undecodable"}},
		{"single-object with a string of 2 GB", singleObject(claim(1 << 31)), []string{"undecodable"}},
		{"JSON of half a million levels", []byte(`{"turn_id":` + strings.Repeat("[", 1<<19)), []string{"undecodable", "invalid_turn"}},
		{"JSON with a million keys", []byte(`{` + strings.Repeat(`"a":0,`, 160_000) + `"b":0}`), []string{"undecodable", "invalid_turn"}},
		{"an empty value", []byte{}, []string{"undecodable"}},
	} {
		b.sendBad(bomb.what, &kgo.Record{Key: []byte("x"), Value: bomb.value, Partition: int32(n) % turnPartitions}, bomb.may...)
	}
}
