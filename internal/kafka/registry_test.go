package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/lathe-run/lathe/schemas"
)

const turnSchema = `{"type":"record","name":"Turn","namespace":"test","fields":[{"name":"id","type":"string"}]}`

func newTestRegistry(tb testing.TB, change func(*RegistryConfig)) (*Registry, *srfake.Registry) {
	tb.Helper()
	fake := srfake.New()
	tb.Cleanup(fake.Close)
	cfg := RegistryConfig{URL: fake.URL()}
	if change != nil {
		change(&cfg)
	}
	r, err := NewRegistry(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r, fake
}

// wantError checks class, code and message of an error.
func wantError(tb testing.TB, err error, class schemas.Class, message string) {
	tb.Helper()
	got, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		tb.Fatalf("error %v is not a schemas.Error", err)
	}
	if got.Class != class || got.Code != schemas.CodeSchemaUnknown || !strings.Contains(got.Message, message) {
		tb.Errorf("error is %v %s %q, want %v %s %q", got.Class, got.Code, got.Message, class, schemas.CodeSchemaUnknown, message)
	}
}

func TestRegistryConfig_NamesEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		config RegistryConfig
		want   []string
	}{
		{name: "no scheme", config: RegistryConfig{URL: "registry:8081"}, want: []string{"must be http"}},
		{name: "other scheme", config: RegistryConfig{URL: "ftp://registry"}, want: []string{"must be http"}},
		{name: "password in the url", config: RegistryConfig{URL: "https://u:hunter2@registry"}, want: []string{"must be http"}},
		{name: "user without password", config: RegistryConfig{URL: "http://r", Username: "u"}, want: []string{"both a user and a password"}},
		{
			name:   "everything wrong",
			config: RegistryConfig{Password: "p", PasswordPath: "f", Token: "t", TLS: TLS{CertPath: "c"}},
			want:   []string{"must be http", "both as it is and as a file", "both a user and a password", "or a token", "needs both"},
		},
		{name: "sound", config: RegistryConfig{URL: "https://registry/path", Username: "u", PasswordPath: "f"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.config.Validate()
			if strings.Contains(errorText(err), "hunter2") {
				t.Errorf("the password is printed: %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(errorText(err), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if len(tc.want) == 0 && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRegistry_FindsByIDAndGUIDAndAsksOnce(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	var requests atomic.Int64
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
	id, _, err := fake.RegisterSchema("turns-value", sr.Schema{Schema: turnSchema})
	if err != nil {
		t.Fatal(err)
	}
	registered, _ := fake.GetSchema("turns-value", 1)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 3 {
				if text, err := r.SchemaByID(t.Context(), id); err != nil || text != turnSchema {
					t.Errorf("by id: %q, %v", text, err)
				}
				if text, err := r.SchemaByGUID(t.Context(), strings.ToUpper(registered.GUID)); err != nil || text != turnSchema {
					t.Errorf("by guid: %q, %v", text, err)
				}
			}
		})
	}
	wg.Wait()
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for one id and one guid, want 2", n)
	}
}

func TestRegistry_AnIDThatDoesNotExistIsTerminal(t *testing.T) {
	t.Parallel()
	r, _ := newTestRegistry(t, nil)
	_, err := r.SchemaByID(t.Context(), 77)
	wantError(t, err, schemas.ClassTerminal, "schema id 77 does not exist")
	_, err = r.SchemaByID(t.Context(), -1)
	wantError(t, err, schemas.ClassTerminal, "not a schema id")
	_, err = r.SchemaByGUID(t.Context(), "6f1f0b6c-0000-0000-0000-000000000000")
	wantError(t, err, schemas.ClassTerminal, "does not exist")
	_, err = r.SchemaByGUID(t.Context(), "../subjects")
	wantError(t, err, schemas.ClassTerminal, "is not a guid")
}

func TestRegistry_LatestLookupRegister(t *testing.T) {
	t.Parallel()
	r, _ := newTestRegistry(t, nil)
	_, err := r.Latest(t.Context(), "turns-value")
	wantError(t, err, schemas.ClassTerminal, "subject turns-value does not exist")
	_, err = r.Lookup(t.Context(), "turns-value", turnSchema)
	wantError(t, err, schemas.ClassTerminal, "does not exist")
	id, err := r.Register(t.Context(), "turns-value", turnSchema)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Register(t.Context(), "turns-value", turnSchema)
	if err != nil || again != id {
		t.Errorf("registered again: %d, %v, want %d", again, err, id)
	}
	latest, err := r.Latest(t.Context(), "turns-value")
	if err != nil || latest.ID != id || latest.Version != 1 || latest.Schema != turnSchema || latest.GUID == "" {
		t.Errorf("latest: %+v, %v", latest, err)
	}
	found, err := r.Lookup(t.Context(), "turns-value", turnSchema)
	if err != nil || found != latest {
		t.Errorf("lookup: %+v, %v, want %+v", found, err, latest)
	}
}

func TestRegistry_RefusedSchemaIsTerminal(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	fake.Intercept(answer(http.StatusConflict, `{"error_code":409,"message":"incompatible"}`))
	_, err := r.Register(t.Context(), "turns-value", turnSchema)
	wantError(t, err, schemas.ClassTerminal, "refused by the schema registry")
}

func TestRegistry_SchemaThatIsNotAvroIsTerminal(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	fake.SeedSchema("x", 1, 5, sr.Schema{Schema: `syntax = "proto3";`, Type: sr.TypeProtobuf})
	_, err := r.SchemaByID(t.Context(), 5)
	wantError(t, err, schemas.ClassTerminal, "not Avro")
}

// answer makes an interceptor that says one thing.
func answer(status int, body string) srfake.Interceptor {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
}

func TestRegistry_WhatIsNotSaidOfTheSchemaIsRetryable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		status  int
		body    string
		message string
	}{
		{"a path that leads nowhere", http.StatusNotFound, "<html>nginx</html>", "no schema registry answers"},
		{"login refused", http.StatusUnauthorized, `{"error_code":401}`, "refuses the login"},
		{"forbidden", http.StatusForbidden, `{"error_code":403}`, "refuses the login"},
		{"down", http.StatusBadGateway, "", "does not answer as it should"},
		{"busy", http.StatusTooManyRequests, "", "does not answer as it should"},
		{"moved", http.StatusFound, "", "does not answer as it should"},
		{"no json", http.StatusOK, "<html>login page</html>", "cannot be reached"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, fake := newTestRegistry(t, func(c *RegistryConfig) { c.Deadline = 2 * time.Second })
			fake.Intercept(answer(tc.status, tc.body))
			_, err := r.SchemaByID(t.Context(), 7)
			wantError(t, err, schemas.ClassRetryable, tc.message)
			// The next record must find the registry again once it answers.
			fake.ClearInterceptors()
			fake.SeedSchema("x", 1, 7, sr.Schema{Schema: turnSchema})
			if text, err := r.SchemaByID(t.Context(), 7); err != nil || text != turnSchema {
				t.Errorf("after it came back: %q, %v", text, err)
			}
		})
	}
}

func TestRegistry_BareNotFoundOfARegistryIsTerminal(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	fake.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/schemas/types" {
			return answer(http.StatusOK, `["AVRO"]`)(w, req)
		}
		return answer(http.StatusNotFound, `{"error_code":404,"message":"HTTP 404 Not Found"}`)(w, req)
	})
	_, err := r.SchemaByID(t.Context(), 7)
	wantError(t, err, schemas.ClassTerminal, "does not exist")
}

func TestRegistry_UnreachableIsRetryable(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, func(c *RegistryConfig) { c.Deadline = 2 * time.Second })
	fake.Close()
	_, err := r.SchemaByID(t.Context(), 7)
	wantError(t, err, schemas.ClassRetryable, "cannot be reached")
}

// A schema may have as many bytes as the limit says, with what it refers to, however much its answer escapes of it and whatever
// stands beside it; an answer has a bound of its own, far enough away for that.
func TestRegistry_TakesASchemaAtTheLimitAndRefusesOneAbove(t *testing.T) {
	t.Parallel()
	const limit = 1 << 16
	const answerLimit = 2*limit + besideSchemaBytes
	padded := func(schema string, n int) string { return schema + strings.Repeat(" ", n-len(schema)) }
	escaped := func(n int) string { // In JSON nearly each of its bytes is two.
		return padded(`{"type":"string","doc":"`+strings.Repeat(`\"`, (n-30)/2)+`"}`, n)
	}
	leaf := `{"type":"record","name":"Leaf","fields":[]}`
	for _, tc := range []struct {
		name  string
		limit int
		serve func(fake *srfake.Registry, n int)
		says  string
	}{
		{"a schema", limit, func(fake *srfake.Registry, n int) {
			fake.SeedSchema("root", 1, 1, sr.Schema{Schema: padded(turnSchema, n)})
		}, "has more than 65536 bytes"},
		{"a schema that its answer escapes", limit, func(fake *srfake.Registry, n int) {
			fake.SeedSchema("root", 1, 1, sr.Schema{Schema: escaped(n)})
		}, "has more than 65536 bytes"},
		{"a schema with what it refers to", limit, func(fake *srfake.Registry, n int) {
			root := sr.Schema{Schema: padded(`["null","Leaf"]`, n-len(leaf)), References: []sr.SchemaReference{{Name: "Leaf", Subject: "leaf", Version: 1}}}
			serve(fake, root, map[string]sr.Schema{"leaf": {Schema: leaf}})
		}, "cannot be resolved"},
		{"an answer", answerLimit, func(fake *srfake.Registry, n int) {
			fake.Intercept(answer(http.StatusOK, padded(`{"schema":"\"string\""}`, n)))
		}, "has more than 196608 bytes"},
	} {
		for n := tc.limit - 1; n <= tc.limit+1; n++ {
			t.Run(fmt.Sprintf("%s, %d bytes", tc.name, n), func(t *testing.T) {
				t.Parallel()
				r, fake := newTestRegistry(t, func(c *RegistryConfig) { c.MaxSchemaBytes = limit })
				tc.serve(fake, n)
				_, byID := r.SchemaByID(t.Context(), 1)
				_, latest := r.Latest(t.Context(), "root")
				for _, err := range []error{byID, latest} {
					if n > tc.limit {
						wantError(t, err, schemas.ClassTerminal, tc.says)
					} else if err != nil {
						t.Errorf("got %v", err)
					}
				}
			})
		}
	}
}

func TestRegistry_LogsInWithSecretsAsTheyAreNow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		header string
		change func(c *RegistryConfig, path string)
	}{
		{"basic", "Basic dTpyaWdodA==", func(c *RegistryConfig, _ string) { c.Username, c.Password = "u", "right" }},
		{"basic from a file", "Basic dTpyaWdodA==", func(c *RegistryConfig, path string) { c.Username, c.PasswordPath = "u", path }},
		{"bearer", "Bearer right", func(c *RegistryConfig, _ string) { c.Token = "right" }},
		{"bearer from a file", "Bearer right", func(c *RegistryConfig, path string) { c.TokenPath = path }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "secret")
			fake := srfake.New(srfake.WithAuth(tc.header))
			t.Cleanup(fake.Close)
			fake.SeedSchema("x", 1, 7, sr.Schema{Schema: turnSchema})
			if err := os.WriteFile(path, []byte("wrong"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := RegistryConfig{URL: fake.URL()}
			tc.change(&cfg, path)
			r, err := NewRegistry(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tc.name, "file") {
				_, err := r.SchemaByID(t.Context(), 7)
				wantError(t, err, schemas.ClassRetryable, "refuses the login")
			}
			if err := os.WriteFile(path, []byte("right\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := r.SchemaByID(t.Context(), 7); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRegistry_ALoginIsNotTakenElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere, elsewhereFake := newTestRegistry(t, nil)
	_ = elsewhere
	var visited atomic.Bool
	elsewhereFake.Intercept(func(http.ResponseWriter, *http.Request) bool { visited.Store(true); return false })
	r, fake := newTestRegistry(t, func(c *RegistryConfig) { c.Token = "secret" })
	fake.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, elsewhereFake.URL(), http.StatusTemporaryRedirect)
		return true
	})
	_, err := r.SchemaByID(t.Context(), 7)
	wantError(t, err, schemas.ClassRetryable, "")
	if visited.Load() {
		t.Error("the login was taken to another host")
	}
}

func TestRegistry_TLS(t *testing.T) {
	t.Parallel()
	cert, ca := testCertificate(t)
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("x", 1, 7, sr.Schema{Schema: turnSchema})
	server := tlsServer(t, cert, fake.Handler())
	for _, tc := range []struct {
		name string
		tls  TLS
		ok   bool
	}{
		{"known authority", TLS{CAPath: ca}, true},
		{"unknown authority", TLS{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, err := NewRegistry(RegistryConfig{URL: server, TLS: tc.tls, Deadline: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.SchemaByID(t.Context(), 7); (err == nil) != tc.ok {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestRegistry_ACallerThatLeavesDoesNotTakeTheOthersAlong(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	fake.SeedSchema("x", 1, 7, sr.Schema{Schema: turnSchema})
	asked, release := make(chan struct{}), make(chan struct{})
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool { close(asked); <-release; return false })
	first, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := r.SchemaByID(first, 7); left <- err }()
	<-asked
	go func() { _, err := r.SchemaByID(t.Context(), 7); stayed <- err }()
	for waiting := false; !waiting; { // until the second has joined
		r.cache.mu.Lock()
		waiting = r.cache.mu.flights["schema id 7"].waiters == 2
		r.cache.mu.Unlock()
	}
	leave()
	wantError(t, <-left, schemas.ClassRetryable, "broken off")
	close(release)
	if err := <-stayed; err != nil {
		t.Errorf("the caller that stayed got %v", err)
	}
}
