package app

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"
)

// LoadSettings reads the settings from environ, a list of name=value as os.Environ returns it, and from the files that
// _FILE variants name, through readFile. It reports all faults at once, and no fault shows a secret.
func LoadSettings(ctx context.Context, environ []string, readFile func(string) ([]byte, error)) (*Settings, error) {
	return loadSettings(ctx, environ, readFile, true)
}

// LoadOfflineSettings is LoadSettings for commands that reach no broker: LATHE_BROKERS may be missing.
func LoadOfflineSettings(ctx context.Context, environ []string, readFile func(string) ([]byte, error)) (*Settings, error) {
	return loadSettings(ctx, environ, readFile, false)
}

func loadSettings(
	ctx context.Context, environ []string, readFile func(string) ([]byte, error), online bool,
) (*Settings, error) {
	fields := settingFields(reflect.TypeFor[Settings]())
	env := readSettingsEnv(environ, fields, readFile)
	s := &Settings{}
	for _, f := range fields {
		if err := env.fill(ctx, f, reflect.ValueOf(s).Elem().FieldByIndex(f.index), online); err != nil {
			env.fault(f.env, err)
		}
	}
	s.SASL.PasswordPath = env.fromFile["SASL_PASSWORD"]
	s.Registry.PasswordPath = env.fromFile["SCHEMA_REGISTRY_PASSWORD"]
	s.Registry.TokenPath = env.fromFile["SCHEMA_REGISTRY_TOKEN"]
	env.check(s)
	slices.SortFunc(env.faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(env.faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// fill sets one setting. go-envconfig stops at its first fault, so it is given one field at a time.
func (e *settingsEnv) fill(ctx context.Context, f configField, dst reflect.Value, online bool) error {
	if e.faulty[f.env] || f.required && !online && e.values[f.env] == "" {
		return nil
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Value", Type: f.typ, Tag: f.tag}}))
	err := envconfig.ProcessWith(ctx, &envconfig.Config{
		Target:   one.Interface(),
		Lookuper: envconfig.MapLookuper(e.values),
		Mutators: durationMutators(f.typ),
	})
	if errors.Is(err, envconfig.ErrMissingRequired) {
		return fmt.Errorf("is required: %s", f.desc)
	}
	if err != nil {
		// The library's text holds the value, which may be a secret.
		return e.misfit(f)
	}
	v := one.Elem().Field(0)
	if err := f.check(v); err != nil {
		return e.discreet(f, err)
	}
	dst.Set(v)
	return nil
}

// durationMutators make days known to go-envconfig, for fields that are durations.
func durationMutators(t reflect.Type) []envconfig.Mutator {
	if t != reflect.TypeFor[time.Duration]() {
		return nil
	}
	return []envconfig.Mutator{envconfig.MutatorFunc(
		func(_ context.Context, _, _, _, current string) (string, bool, error) {
			d, err := parseDuration(current)
			return d.String(), false, err
		})}
}

// misfit says that a value is not of the type of its setting.
func (e *settingsEnv) misfit(f configField) error {
	var err error
	switch f.typ {
	case reflect.TypeFor[time.Duration]():
		err = errNotDuration
	case reflect.TypeFor[ByteSize]():
		err = errNotSize
	default:
		err = fmt.Errorf("is not a %s", f.typeName())
	}
	if e.hides(f) {
		return fmt.Errorf("the value %w", err)
	}
	return fmt.Errorf("%q %w", e.values[f.env], err)
}

// discreet replaces a fault that repeats a value which may not be shown.
func (e *settingsEnv) discreet(f configField, err error) error {
	if !e.hides(f) {
		return err
	}
	if len(f.oneOf) > 0 {
		return fmt.Errorf("the value is not %s", f.typeName())
	}
	return fmt.Errorf("the value is not between %s and %s", orNone(f.min), orNone(f.max))
}

func orNone(bound string) string {
	if bound == "" {
		return "any"
	}
	return bound
}

// hides reports whether the value of f may not appear in a fault: it is a secret, or it came from a file, which may be any.
func (e *settingsEnv) hides(f configField) bool {
	return f.typ == reflect.TypeFor[Secret]() || e.fromFile[f.env] != ""
}
