package schemas

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// writerSchema is a writer's schema made ready: its type, its codec, and the way to the record of ours that it writes.
type writerSchema struct {
	typ     *avroType
	codec   binaryCodec
	project projection
	record  Record
}

// writerSchemas holds the writers' schemas that were met, compiled for a set of our records. A schema never changes under
// its id, GUID or fingerprint, so what was compiled, or refused, is kept until it is the longest unused.
type writerSchemas struct {
	limits  schemaLimits
	readers map[Record]*avroType
	// builtin holds the texts of our own schemas, of this and earlier releases, by fingerprint.
	builtin map[uint64]string
	max     int

	mu struct {
		sync.Mutex
		byKey map[string]*list.Element
		order *list.List // of *keptSchema, the last used first
	}
}

type keptSchema struct {
	key    string
	schema *writerSchema
	err    error
}

func newWriterSchemas(opts DecoderOptions, records ...Record) *writerSchemas {
	s := &writerSchemas{
		limits:  schemaLimits{bytes: opts.MaxSchemaBytes, depth: opts.MaxSchemaDepth},
		readers: make(map[Record]*avroType),
		builtin: make(map[uint64]string),
		max:     opts.MaxSchemas,
	}
	s.mu.byKey = make(map[string]*list.Element)
	s.mu.order = list.New()
	for _, r := range records {
		s.readers[r] = r.parse()
		for _, text := range append(r.released(), r.Schema()) {
			if t, err := parseAvroSchema(text, schemaLimits{}); err == nil {
				s.builtin[t.fingerprint()] = text
			}
		}
	}
	return s
}

// decode reads a record's binary into the shape of our record.
func (s *writerSchemas) decode(ctx context.Context, opts DecoderOptions, form wireForm) (map[string]any, Record, error) {
	w, err := s.find(ctx, opts.Registry, form)
	if err != nil {
		return nil, "", err
	}
	if err := walkAvro(w.typ, form.payload, opts.MaxValues); err != nil {
		return nil, "", Errorf(CodeUndecodable, "the value is not what its schema says: %v", err)
	}
	v, err := w.codec.decode(form.payload)
	if err != nil {
		return nil, "", Errorf(CodeUndecodable, "the value is not what its schema says: %v", err)
	}
	if v, err = w.project(v); err != nil {
		return nil, "", Errorf(CodeUndecodable, "the value cannot be read as %s: %v", w.record, err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, "", Errorf(CodeUndecodable, "the value is no record")
	}
	return m, w.record, nil
}

// find returns the compiled schema of a record, from what is kept or from where it is named.
func (s *writerSchemas) find(ctx context.Context, registry Registry, form wireForm) (*writerSchema, error) {
	key := form.schemaKey()
	if kept := s.kept(key); kept != nil {
		return kept.schema, kept.err
	}
	text, err := s.text(ctx, registry, form)
	if err != nil {
		return nil, err
	}
	// Two goroutines may compile the same schema at the same time; that does no harm and needs no waiting.
	w, err := s.compile(text)
	if err != nil {
		err = Errorf(CodeUndecodable, "the record's schema is refused: %v", err)
	}
	s.keep(&keptSchema{key: key, schema: w, err: err})
	return w, err
}

func (f *wireForm) schemaKey() string {
	switch {
	case f.encoding == EncodingAvroSingle:
		return "fingerprint " + strconv.FormatUint(f.fingerprint, 16)
	case f.guid != "":
		return "guid " + f.guid
	}
	return "id " + strconv.Itoa(f.id)
}

func (s *writerSchemas) text(ctx context.Context, registry Registry, form wireForm) (string, error) {
	if form.encoding == EncodingAvroSingle {
		text, ok := s.builtin[form.fingerprint]
		if !ok {
			return "", Errorf(CodeSchemaUnknown, "no schema of this contract has the fingerprint %016x", form.fingerprint)
		}
		return text, nil
	}
	if registry == nil {
		return "", Errorf(CodeSchemaUnknown, "the record names a schema by %s, but no schema registry is set", form.schemaKey())
	}
	var text string
	var err error
	if form.guid != "" {
		text, err = registry.SchemaByGUID(ctx, form.guid)
	} else {
		text, err = registry.SchemaByID(ctx, form.id)
	}
	if err == nil {
		return text, nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return "", e
	}
	// What is not classified may pass; taking it for final would lose the record.
	return "", &Error{
		Class: ClassRetryable, Code: CodeSchemaUnknown, Err: err,
		Message: "the schema registry did not answer",
	}
}

func (s *writerSchemas) compile(text string) (*writerSchema, error) {
	t, err := parseAvroSchema(text, s.limits)
	if err != nil {
		return nil, err
	}
	w := &writerSchema{typ: t, record: Record(unqualified(t.name))}
	reader, ok := s.readers[w.record]
	if !ok || t.kind != "record" {
		return nil, errors.New("it is not the schema of a record of this topic")
	}
	if w.project, err = resolveAvro(t, reader); err != nil {
		return nil, fmt.Errorf("it cannot be read as %s: %w", w.record, err)
	}
	if w.codec, err = newGoavroCodec(t); err != nil {
		return nil, err
	}
	return w, nil
}

func (s *writerSchemas) kept(key string) *keptSchema {
	s.mu.Lock()
	defer s.mu.Unlock()
	el, ok := s.mu.byKey[key]
	if !ok {
		return nil
	}
	s.mu.order.MoveToFront(el)
	kept, _ := el.Value.(*keptSchema)
	return kept
}

func (s *writerSchemas) keep(k *keptSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if el, ok := s.mu.byKey[k.key]; ok {
		el.Value = k
		return
	}
	s.mu.byKey[k.key] = s.mu.order.PushFront(k)
	if s.mu.order.Len() > s.max {
		oldest := s.mu.order.Back()
		if k, ok := s.mu.order.Remove(oldest).(*keptSchema); ok {
			delete(s.mu.byKey, k.key)
		}
	}
}
