package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// metaManifest has two agents: shop keeps a history and ends at an unknown outcome, clerk does neither. Limits are low, so that
// turns meet them.
const metaManifest = `version: 1
agents:
  shop: {model: main, system: You sell., tools: ["*"], history: session, limits: {steps: 4, calls: 8, parallel: 2, consecutive_failures: 2, duration: 1h}}
  clerk: {model: main, system: You write., tools: ["*"], history: none, on_unknown_outcome: continue, limits: {steps: 6, parallel: 3, duration: 1h}}
models:
  main: {provider: scripted, model: m, script: script.yaml}
tools:
  big: {max_result_bytes: 1KiB}
  slow: {timeout: 2s}
  flaky: {retry: {retries: 3, initial: 20ms, max: 1s}}
`

// metaScript is what each kind of turn does: the calls of each step, by name. After the last the model answers. The kinds that do
// not fit in are told apart in metaModel.
var metaScript = map[string][][]string{
	"plain":    {},
	"reads":    {{"look", "look", "look"}, {"look", "look"}},
	"write":    {{"note"}, {"note"}},
	"once":     {{"charge"}, {"look"}},
	"mixed":    {{"charge", "note", "look", "note", "look"}, {"charge"}},
	"error":    {{"fail", "look"}},
	"failing":  {{"fail"}, {"fail"}, {"look"}},
	"endless":  {{"look"}, {"look"}, {"look"}, {"look"}, {"look"}, {"look"}},
	"greedy":   {{"look", "look", "look", "look", "look", "look", "look", "look", "look"}},
	"mistaken": {{"strange", "look"}},
	"stranger": {{"nosuch", "look"}},
	"doubtful": {{"spill"}, {"look"}},
	"panicky":  {{"panic"}},
	"large":    {{"big"}},
	"slow":     {{"slow", "look"}},
	"flaky":    {{"flaky", "look"}},
	"busy":     {{"look"}},
	"refused":  {},
	"shaped":   {},
	"late":     {{"look"}},
	"early":    {{"note"}},
	"dragging": {{"look"}, {"look"}, {"look"}},
}

// metaArguments is what the model writes for each tool that is not asked for a number.
var metaArguments = map[string]string{"strange": `{"n": "a word"}`}

// metaAnswer is what the scripted model says: it depends on nothing but the request, and its text has a hash of all that it was
// told, so that a history which differs by a byte shows in every later answer of the session.
func metaAnswer(req *fact.Request, attempt int) (*fact.Response, error) {
	_, kind, _ := strings.Cut(req.TurnID, "-")
	switch {
	case kind == "refused":
		return nil, schemas.Errorf(schemas.CodeModelRefused, "the model will not")
	case kind == "busy" && attempt%3 != 2:
		return nil, &schemas.Error{Class: schemas.ClassRetryable, Code: schemas.CodeModelUnavailable, Message: "try again"}
	}
	text := fmt.Sprintf("%s %d #%s", kind, req.Step, metaHash(req.Messages))
	resp := &fact.Response{Text: text, Usage: schemas.Usage{InputTokens: 11, OutputTokens: 7}}
	steps := metaScript[kind]
	if req.Step >= len(steps) {
		return resp, nil
	}
	for i, name := range steps[req.Step] {
		args, ok := metaArguments[name]
		if !ok {
			args = fmt.Sprintf(`{"n": %d}`, req.Step*10+i)
		}
		if name == "strange" {
			name = "look"
		}
		resp.Calls = append(resp.Calls, fact.Asked{Name: name, CallID: fmt.Sprintf("call-%d-%d", req.Step, i), Arguments: []byte(args)})
	}
	return resp, nil
}

func metaHash(messages []fact.Message) string {
	h := sha256.New()
	for i := range messages {
		m := &messages[i]
		fmt.Fprintf(h, "%s|%s|%s|%s|%t|%q|%q\n", m.Role, m.Text, m.CallID, m.Tool, m.Failed, m.Calls, m.Opaque)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// metaLedger is what happened outside the workers: each start of a call that can change something.
type metaLedger struct {
	mu     sync.Mutex
	starts map[string][]string // the processes that started the call of a key, in order
}

func (l *metaLedger) start(key, process string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[key] = append(l.starts[key], process)
}

// pace delays models and tools, by chance. It is shared by the processes of one run.
type pace struct {
	mu     sync.Mutex
	random *rand.Rand
	// longest bounds a delay; 0 is none.
	longest time.Duration
}

func (p *pace) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.longest == 0 || p.random.IntN(3) == 0 {
		return 0
	}
	return time.Duration(p.random.Int64N(int64(p.longest)))
}

func (p *pace) wait(c *tools.Context) error {
	select {
	case <-time.After(p.delay()):
		return nil
	case <-c.Done():
		return c.Err()
	}
}

type metaIn struct {
	N int `json:"n"`
}

// metaTools are the tools of one process.
func metaTools(process string, ledger *metaLedger, p *pace) []tools.Tool {
	echo := func(c *tools.Context, in metaIn) (string, error) {
		if err := p.wait(c); err != nil {
			return "", err
		}
		return c.IdempotencyKey() + " " + strconv.Itoa(in.N), nil
	}
	changing := func(c *tools.Context, in metaIn) (string, error) {
		ledger.start(c.IdempotencyKey(), process)
		return echo(c, in)
	}
	read, write := tools.Options{Description: "Reads.", Effect: schemas.EffectRead}, tools.Options{Description: "Writes.", Effect: schemas.EffectWrite}
	again := write
	again.Idempotency = schemas.SafeToRetry
	return []tools.Tool{
		tools.Define("look", echo, read),
		tools.Define("note", changing, again),
		tools.Define("charge", changing, write),
		tools.Define("fail", func(c *tools.Context, _ metaIn) (string, error) {
			return "", errors.Join(errors.New("it fails"), p.wait(c))
		}, read),
		tools.Define("spill", func(c *tools.Context, in metaIn) (string, error) {
			if s, err := changing(c, in); err != nil {
				return s, err
			}
			return "", errors.New("it may have spilt")
		}, again),
		tools.Define("panic", func(*tools.Context, metaIn) (string, error) { panic("a bug of the tool") }, read),
		tools.Define("big", func(*tools.Context, metaIn) (string, error) { return strings.Repeat("x", 2<<10), nil }, read),
		tools.Define("slow", func(c *tools.Context, _ metaIn) (string, error) {
			<-c.Done()
			return "", c.Err()
		}, read),
		tools.Define("flaky", func(c *tools.Context, in metaIn) (string, error) {
			if c.Attempt() < 3 {
				return "", errors.Join(errors.New("not yet"), p.wait(c))
			}
			return echo(c, in)
		}, read),
	}
}

// metaFiles writes the manifest and loads it with the settings.
func metaFiles(t *testing.T) (*Settings, *Manifest) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lathe.yaml": metaManifest, "script.yaml": "version: 1\nscenarios: [{steps: [{text: never}]}]\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s, err := LoadOfflineSettings(t.Context(), nil, os.ReadFile)
	must(t, err)
	m, err := LoadManifest(filepath.Join(dir, "lathe.yaml"), func(string) (string, bool) { return "", false })
	must(t, err)
	return s, m
}

// metaEngine binds the agents to the tools of a process and to the model of the test.
func metaEngine(s *Settings, m *Manifest, process string, ledger *metaLedger, p *pace, deps EngineDeps) (*Engine, error) {
	deps.Now = time.Now
	attempts := &attemptCounter{seen: map[string]int{}}
	model := llm.NewScripted(func(req *fact.Request) (*fact.Response, error) {
		<-time.After(p.delay())
		return metaAnswer(req, attempts.next(req.TurnID, req.Step))
	})
	models, err := llm.New([]llm.Config{{Name: "main", Provider: llm.ProviderScripted, Scripted: model}}, llm.Deps{Logger: deps.Logger})
	if err != nil {
		return nil, err
	}
	runtime, err := tools.New(tools.Config{
		MaxInputBytes: int(s.Limits.InputBytes), MaxResultBytes: int(s.Limits.ResultBytes), MaxRecordBytes: int(s.Limits.RecordBytes),
	}, tools.Deps{Logger: deps.Logger})
	if err != nil {
		return nil, err
	}
	bound, err := runtime.Bind(bindings(m), metaTools(process, ledger, p), toolSettings(m))
	if err != nil {
		return nil, err
	}
	e := &Engine{models: models, runtime: runtime, agents: map[string]*boundAgent{}}
	for name, a := range m.Agents {
		e.agents[name] = e.bind(name, a, bound[name], deps)
	}
	return e, nil
}

// attemptCounter counts the attempts of each model request in one process.
type attemptCounter struct {
	mu   sync.Mutex
	seen map[string]int
}

func (a *attemptCounter) next(turn string, step int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := turn + "/" + strconv.Itoa(step)
	a.seen[key]++
	return a.seen[key] - 1
}

// metaInput is one record of the turns topic.
type metaInput struct {
	key       []byte
	partition int32
	value     []byte
}

// metaInputs are what is sent, in two parts; the second comes when the turns of the first have ended.
type metaInputs struct {
	first, second []metaInput
	// turns are the ids of all turns with their session, loose those whose cancel may come before or after their end.
	turns map[string]string
	loose map[string]bool
}

const metaPartitions = 4

// metaLoad draws the records of a world.
func metaLoad(random *rand.Rand) *metaInputs {
	in := &metaInputs{turns: map[string]string{}, loose: map[string]bool{}}
	kinds := make([]string, 0, len(metaScript))
	for k := range metaScript {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	kinds = append(kinds, "once", "mixed", "write", "mixed", "once", "reads") // more of what is hard
	var sent []metaInput
	for i := range 56 {
		kind := kinds[i%len(kinds)]
		if i >= len(kinds) {
			kind = kinds[random.IntN(len(kinds))]
		}
		id, session := fmt.Sprintf("t%03d-%s", i, kind), fmt.Sprintf("session-%d", random.IntN(9))
		if kind == "dragging" {
			session = "alone-" + id // What comes of it is left to chance, so nothing may build on it.
		}
		in.turns[id] = session
		if kind == "early" {
			in.first = append(in.first, metaRecord(session, metaCancel(session, id)))
		}
		turn := metaRecord(session, metaTurn(random, session, id, kind))
		in.first, sent = append(in.first, turn), append(sent, turn)
		switch {
		case kind == "dragging":
			in.loose[id] = true
			in.first = append(in.first, metaRecord(session, metaCancel(session, id)))
		case random.IntN(4) == 0: // It comes again, perhaps much later.
			in.first = append(in.first, sent[random.IntN(len(sent))])
		case random.IntN(5) == 0:
			in.first = append(in.first, metaBad(random, i, session, id)...)
		}
	}
	for id, session := range in.turns {
		switch {
		case len(id)%3 == 0:
			in.second = append(in.second, metaRecord(session, metaCancel(session, id)))
		case len(id)%3 == 1 && !in.loose[id]:
			in.second = append(in.second, metaRecord(session, `{"turn_id":"`+id+`","session_id":"`+session+`","agent":"shop","messages":[{"role":"user","content":"another"}]}`))
		}
	}
	slices.SortFunc(in.second, func(a, b metaInput) int { return strings.Compare(string(a.value), string(b.value)) })
	in.second = append(in.second, sent...)
	return in
}

func metaTurn(random *rand.Rand, session, id, kind string) string {
	agent, more := "shop", ""
	if random.IntN(3) == 0 {
		agent = "clerk"
	}
	switch kind {
	case "shaped":
		more = `,"output_schema":{"type":"object","required":["x"],"properties":{"x":{"type":"string"}}}`
	case "late":
		more = `,"deadline":"1999-12-31T00:00:00.000Z"` // A bubble begins in 2000.
	}
	return fmt.Sprintf(`{"turn_id":%q,"session_id":%q,"agent":%q,"messages":[{"role":"user","content":"please %d"}]%s}`, id, session, agent, random.IntN(1000), more)
}

func metaCancel(session, id string) string {
	return fmt.Sprintf(`{"type":"cancel","turn_id":%q,"session_id":%q}`, id, session)
}

func metaRecord(session, value string) metaInput {
	return metaInput{key: []byte(session), partition: metaMurmur2(session), value: []byte(value)}
}

// metaBad are records that end as dead letters.
func metaBad(random *rand.Rand, i int, session, id string) []metaInput {
	fresh := fmt.Sprintf("bad%03d-plain", i)
	good := metaRecord(session, fmt.Sprintf(`{"turn_id":%q,"session_id":%q,"agent":"shop","messages":[{"role":"user","content":"x"}]}`, fresh, session))
	bad := good
	switch random.IntN(7) {
	case 0:
		bad.value = []byte("not a turn")
	case 1:
		bad.value = nil
	case 2:
		bad.key = nil
	case 3:
		bad.key = []byte("another")
	case 4:
		bad.partition = (bad.partition + 1) % metaPartitions
	case 5:
		bad.value = []byte(strings.Replace(string(bad.value), `"shop"`, `"nobody"`, 1))
	case 6: // The id of a turn that stands before it, in the same partition, with another content.
		bad.value = []byte(strings.Replace(string(bad.value), fresh, id, 1))
	}
	return []metaInput{bad}
}
