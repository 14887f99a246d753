package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/lathe-run/lathe/schemas"
)

// RegistryConfig says how to reach a Schema Registry.
type RegistryConfig struct {
	// URL starts with http:// or https:// and holds no user and password.
	URL string
	// Username and Password log in with basic authentication; PasswordPath is a file with the password that is read for
	// each request, instead of Password.
	Username, Password, PasswordPath string
	// Token logs in as a bearer; TokenPath is a file with it that is read for each request, instead of Token.
	Token, TokenPath string
	// TLS applies to an https URL; its Enabled is not looked at.
	TLS TLS
	// Timeout bounds one request; default 5 s.
	Timeout time.Duration
	// Deadline bounds a call with all its retries; default 15 s.
	Deadline time.Duration
	// MaxSchemaBytes bounds one schema with its references, and twice that and 64 KiB one answer; default 1 MiB.
	MaxSchemaBytes int
	// Transport replaces the network, for tests.
	Transport http.RoundTripper
}

func (c RegistryConfig) withDefaults() RegistryConfig {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Deadline == 0 {
		c.Deadline = 15 * time.Second
	}
	if c.MaxSchemaBytes == 0 {
		c.MaxSchemaBytes = 1 << 20
	}
	return c
}

// Validate returns every fault of the settings, one a line.
func (c RegistryConfig) Validate() error {
	var faults []error
	// The URL is not repeated: someone may have put a password into it.
	if u, err := url.Parse(c.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		faults = append(faults, errors.New("registry: the url must be http://... or https://... without user and password"))
	}
	if c.Password != "" && c.PasswordPath != "" || c.Token != "" && c.TokenPath != "" {
		faults = append(faults, errors.New("registry: a secret is given both as it is and as a file"))
	}
	basic, bearer := c.Username != "" || c.Password != "" || c.PasswordPath != "", c.Token != "" || c.TokenPath != ""
	if basic && (c.Username == "" || c.Password == "" && c.PasswordPath == "") {
		faults = append(faults, errors.New("registry: basic authentication needs both a user and a password"))
	}
	if basic && bearer {
		faults = append(faults, errors.New("registry: give either a user and a password or a token"))
	}
	for _, fault := range (TLS{Enabled: true, CertPath: c.TLS.CertPath, KeyPath: c.TLS.KeyPath}).faults() {
		faults = append(faults, fmt.Errorf("registry: %w", fault))
	}
	return errors.Join(faults...)
}

// Registry finds schemas in a Schema Registry. It is safe for concurrent use.
//
// Its errors are [schemas.Error]: retryable when the registry cannot answer now, terminal when what was asked for does not
// exist or cannot be used.
type Registry struct {
	cfg   RegistryConfig
	cl    *sr.Client
	cache *schemaCache
}

// NewRegistry makes a registry client; it connects when it is first asked.
func NewRegistry(cfg RegistryConfig) (*Registry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check the settings of the schema registry: %w", err)
	}
	cfg = cfg.withDefaults()
	transport, err := newRegistryTransport(cfg)
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{
		Transport: transport,
		// A redirect would take the login to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	cl, err := sr.NewClient(sr.URLs(cfg.URL), sr.UserAgent(softwareName), sr.HTTPClient(httpClient))
	if err != nil {
		return nil, fmt.Errorf("make the client of the schema registry: %w", err)
	}
	return &Registry{cfg: cfg, cl: cl, cache: newSchemaCache()}, nil
}

// Registered is a schema under a subject.
type Registered struct {
	ID int
	// GUID is empty when the registry has none.
	GUID    string
	Version int
	// Schema is the whole schema: what it refers to is written into it.
	Schema string
}

// SchemaByID returns the schema with an id, what it refers to written into it. It is kept for good.
func (r *Registry) SchemaByID(ctx context.Context, id int) (string, error) {
	if id < 0 {
		return "", schemas.Errorf(schemas.CodeSchemaUnknown, "schema id %d is not a schema id", id)
	}
	name := "schema id " + strconv.Itoa(id)
	return r.cache.get(ctx, name, func(ctx context.Context) (string, error) {
		return r.fetch(ctx, name, func(ctx context.Context) (sr.Schema, error) { return r.cl.SchemaByID(ctx, id) })
	})
}

// SchemaByGUID returns the schema with a GUID (Confluent Platform 8), what it refers to written into it. It is kept for
// good.
func (r *Registry) SchemaByGUID(ctx context.Context, guid string) (string, error) {
	guid = strings.ToLower(guid)
	if !isGUID(guid) {
		return "", schemas.Errorf(schemas.CodeSchemaUnknown, "the schema guid is not a guid")
	}
	name := "schema guid " + guid
	return r.cache.get(ctx, name, func(ctx context.Context) (string, error) {
		return r.fetch(ctx, name, func(ctx context.Context) (sr.Schema, error) {
			found, err := r.cl.SchemaByGUID(ctx, guid)
			return found.Schema, err
		})
	})
}

func isGUID(s string) bool {
	return regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(s)
}

// Latest returns the newest schema of a subject.
func (r *Registry) Latest(ctx context.Context, subject string) (Registered, error) {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	name := "subject " + subject
	const latest = -1
	found, err := r.cl.SchemaByVersion(ctx, subject, latest)
	if err != nil {
		return Registered{}, r.classify(ctx, name, err)
	}
	text, err := r.resolve(ctx, name, found.Schema)
	if err != nil {
		return Registered{}, err
	}
	return Registered{ID: found.ID, GUID: found.GUID, Version: found.Version, Schema: text}, nil
}

// Lookup returns the id, guid and version that a subject has for a schema; terminal if it has it not.
func (r *Registry) Lookup(ctx context.Context, subject, schema string) (Registered, error) {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	found, err := r.cl.LookupSchema(ctx, subject, sr.Schema{Schema: schema, Type: sr.TypeAvro})
	if err != nil {
		return Registered{}, r.classify(ctx, "subject "+subject+" with this schema", err)
	}
	return Registered{ID: found.ID, GUID: found.GUID, Version: found.Version, Schema: schema}, nil
}

// Register adds a schema to a subject, if it has it not yet, and returns its id; terminal if the registry refuses it.
func (r *Registry) Register(ctx context.Context, subject, schema string) (int, error) {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	const anyID, nextVersion = -1, -1
	id, err := r.cl.RegisterSchema(ctx, subject, sr.Schema{Schema: schema, Type: sr.TypeAvro}, anyID, nextVersion)
	if err != nil {
		return 0, r.classify(ctx, "subject "+subject, err)
	}
	return id, nil
}

func (r *Registry) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.cfg.Deadline, fmt.Errorf("no answer within %s", r.cfg.Deadline))
}

// fetch gets one schema and all that it refers to.
func (r *Registry) fetch(ctx context.Context, name string, get func(context.Context) (sr.Schema, error)) (string, error) {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	found, err := get(ctx)
	if err != nil {
		return "", r.classify(ctx, name, err)
	}
	return r.resolve(ctx, name, found)
}

// resolve writes what a schema refers to into it.
func (r *Registry) resolve(ctx context.Context, name string, schema sr.Schema) (string, error) {
	if schema.Type != sr.TypeAvro {
		return "", schemas.Errorf(schemas.CodeSchemaUnknown, "%s is %s, not Avro", name, schema.Type)
	}
	if len(schema.Schema) > r.cfg.MaxSchemaBytes {
		return "", schemas.Errorf(schemas.CodeSchemaUnknown, "%s has more than %d bytes", name, r.cfg.MaxSchemaBytes)
	}
	if len(schema.References) == 0 {
		return schema.Schema, nil
	}
	in := inliner{limit: r.cfg.MaxSchemaBytes, fetch: func(ref sr.SchemaReference) (sr.Schema, error) {
		// A schema that was deleted softly is still what others refer to.
		found, err := r.cl.SchemaByVersion(sr.WithParams(ctx, sr.ShowDeleted), ref.Subject, ref.Version)
		if err != nil {
			return sr.Schema{}, r.classify(ctx, fmt.Sprintf("subject %s version %d, to which %s refers,", ref.Subject, ref.Version, name), err)
		}
		return found.Schema, nil
	}}
	text, err := in.inline(schema)
	if err == nil {
		return text, nil
	}
	if classified, ok := errors.AsType[*schemas.Error](err); ok {
		return "", classified
	}
	return "", &schemas.Error{Code: schemas.CodeSchemaUnknown, Message: name + " cannot be resolved", Err: err}
}
