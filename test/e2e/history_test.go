package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// echoModel is a Chat Completions server that answers with all that users have said so far.
func (b *bed) echoModel() string {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var body struct {
			Messages []struct {
				Role    string          `json:"role"`
				Content json.RawMessage `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var said []string
		for _, m := range body.Messages {
			if m.Role != "system" {
				said = append(said, m.Role+"="+strings.Trim(string(m.Content), `"`))
			}
		}
		text, _ := json.Marshal(strings.Join(said, "; "))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"echo","choices":[{"index":0,"finish_reason":"stop",`+
			`"message":{"role":"assistant","content":%s}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`, text)
	}))
	b.Cleanup(server.Close)
	return server.URL
}

func (r *reader) answer(turn string) string {
	r.Helper()
	var text string
	r.must(json.Unmarshal(r.end(turn).Output, &text))
	return text
}

// TestWipedDataDir_IsRestoredFromTheChangelog compares sessions that go on after a restart with the local state kept, wiped, and
// spoilt: each turn sees the messages of those before it, and no turn is run again.
func TestWipedDataDir_IsRestoredFromTheChangelog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		crash bool
		wipe  func(b *bed, data string)
	}{
		{"kept after a drain", false, func(*bed, string) {}},
		{"kept after a kill", true, func(*bed, string) {}},
		{"wiped after a drain", false, func(b *bed, data string) { b.must(os.RemoveAll(data)) }},
		{"wiped after a kill", true, func(b *bed, data string) { b.must(os.RemoveAll(data)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.createTurns()
			b.write("lathe.yaml", "version: 1\nagents: {echo: {model: echo, system: Echo.}}\nmodels: {echo: {provider: openai, model: echo, base_url: \""+b.echoModel()+"\"}}\n")
			first := b.start("w-0")
			r := b.reader()
			b.send("one", "ann")
			b.send("two", "ann")
			b.send("other", "ben")
			r.allEnded()
			b.awaitCommitted()
			if tc.crash {
				first.kill()
			} else {
				first.drain()
			}
			tc.wipe(b, filepath.Join(b.dir, "data-w-0"))
			second := b.start("w-0")
			b.send("three", "ann")
			b.sendAgain()
			r.allEnded()
			b.awaitCommitted()
			second.drain()
			r.check()
			said := "user=this is one"
			for _, turn := range []string{"one", "two", "three"} {
				if turn != "one" {
					said += "; user=this is " + turn
				}
				if got := r.answer(turn); got != said {
					t.Errorf("turn %s saw %q, want %q", turn, got, said)
				}
				said += "; assistant=" + said
			}
		})
	}
}
