package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/lathe-run/lathe/schemas"
)

// TestEncodings_InAndOut runs turns that come in every framing with the events in each encoding.
func TestEncodings_InAndOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		encoding schemas.Encoding
		first    []byte
		mime     string
	}{
		{schemas.EncodingJSON, []byte("{"), schemas.ContentTypeJSON},
		{schemas.EncodingAvro, []byte{0}, schemas.ContentTypeAvro},
		{schemas.EncodingAvroSingle, []byte{0xc3, 0x01}, schemas.ContentTypeAvro},
	} {
		t.Run(string(tc.encoding), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.createTurns()
			client, err := sr.NewClient(sr.URLs(b.withRegistry().URL()))
			b.must(err)
			b.settings["LATHE_ENCODING"], b.settings["LATHE_SCHEMA_REGISTRY_REGISTER"] = string(tc.encoding), "true"
			first := b.start("w-0", envSignals+"=kill:before:end:2")
			r := b.reader(func(o *schemas.DecoderOptions) { o.Registry = registrySchemas{client} })
			b.sendFramed(client)
			first.awaitKilled()
			second := b.start("w-0")
			r.allEnded()
			b.awaitCommitted()
			second.drain()
			r.check()
			for _, o := range r.outputs {
				if !bytes.HasPrefix(o.rec.Value, tc.first) || header(o.rec, "content-type") != tc.mime {
					t.Errorf("event %s begins with % x and is %s", o.env.EventID, o.rec.Value[:2], header(o.rec, "content-type"))
				}
			}
		})
	}
}

// sendFramed sends turns in every framing, and each again in the others, which makes it no other turn.
func (b *bed) sendFramed(client *sr.Client) {
	b.Helper()
	id, err := client.RegisterSchema(b.ctx, b.topic("turns")+"-value", sr.Schema{Schema: schemas.RecordTurnEvent.Schema()}, -1, -1)
	b.must(err)
	framings := []struct {
		name     string
		encoding schemas.Encoding
		opts     schemas.EncoderOptions
	}{
		{"json", schemas.EncodingJSON, schemas.EncoderOptions{}},
		{"single", schemas.EncodingAvroSingle, schemas.EncoderOptions{}},
		{"prefix", schemas.EncodingAvro, schemas.EncoderOptions{SchemaID: id}},
		{"header", schemas.EncodingAvro, schemas.EncoderOptions{SchemaID: id, IDInHeader: true}},
	}
	for _, of := range framings {
		ev, expected := turn("save-"+of.name, "session-"+of.name)
		ev.Metadata = map[string]string{"sent": "as " + of.name}
		b.sent = append(b.sent, expected)
		b.produce(b.encode(ev, of.encoding, of.opts))
		for _, again := range framings {
			b.produce(b.encode(ev, again.encoding, again.opts))
		}
	}
	ev, expected := turn("save-cloudevent", "cloud")
	b.sent = append(b.sent, expected)
	plain := b.encode(ev, schemas.EncodingJSON, schemas.EncoderOptions{})
	plain.Value = fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"/test","type":"turn","datacontenttype":"application/json","data":%s}`, plain.Value)
	plain.Headers = []kgo.RecordHeader{{Key: schemas.HeaderContentType, Value: []byte(schemas.ContentTypeCloudEvent)}}
	b.produce(plain)
}

func (b *bed) encode(ev *schemas.TurnEvent, enc schemas.Encoding, opts schemas.EncoderOptions) *kgo.Record {
	b.Helper()
	value, headers, err := schemas.EncodeTurnEvent(ev, enc, opts)
	b.must(err)
	rec := &kgo.Record{Key: []byte(ev.SessionID), Value: value}
	for _, h := range headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	return rec
}

// TestMetrics_NameTheWorkerAndTheModel looks for the names that dashboards are made of.
func TestMetrics_NameTheWorkerAndTheModel(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	w := b.start("w-0").ready()
	r := b.reader()
	b.send("both-1", "ann")
	r.allEnded()
	status, body := w.probe("/metrics")
	for _, want := range []string{"lathe_", "gen_ai_"} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("/metrics (%d) has no %s", status, want)
		}
	}
	w.drain()
	r.check()
}
