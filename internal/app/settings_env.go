package app

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lathe-run/lathe/internal/tools"
)

const (
	fileSuffix = "_FILE"
	testPrefix = settingsPrefix + "TEST_"
	// maxSettingFile bounds what a _FILE variant may read: keys and passwords are far smaller.
	maxSettingFile = 64 << 10
)

// kubernetesName matches what Kubernetes puts into every pod for a Service called lathe or lathe-*.
var kubernetesName = regexp.MustCompile(
	`^LATHE(_.+)?(_SERVICE_HOST|_SERVICE_PORT(_.+)?|_PORT|_PORT_.+_(TCP|UDP|SCTP).*)$`)

// settingsEnv holds the values that were found, by names without the prefix, and what was wrong with them.
type settingsEnv struct {
	values   map[string]string
	fromFile map[string]string // the path
	faulty   map[string]bool
	faults   []error
}

func (e *settingsEnv) fault(name string, err error) {
	e.faulty[name] = true
	e.faults = append(e.faults, fmt.Errorf("%s%s: %w", settingsPrefix, name, err))
}

// readSettingsEnv finds the value of each setting: in environ, or in the file that its _FILE variant names. Empty is
// unset. A name that is no setting is a fault, since it is most likely a misspelt one.
func readSettingsEnv(environ []string, fields []configField, readFile func(string) ([]byte, error)) *settingsEnv {
	e := &settingsEnv{values: map[string]string{}, fromFile: map[string]string{}, faulty: map[string]bool{}}
	raw := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if setting, ok := strings.CutPrefix(name, settingsPrefix); ok {
			raw[setting] = value
		}
	}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.env] = true
		if value := raw[f.env]; value != "" {
			e.values[f.env] = value
		}
		if f.isPath {
			continue
		}
		known[f.env+fileSuffix] = true
		if path := raw[f.env+fileSuffix]; path != "" {
			e.readVariant(f.env, path, readFile)
		}
	}
	e.refuseUnknown(raw, known)
	return e
}

func (e *settingsEnv) readVariant(name, path string, readFile func(string) ([]byte, error)) {
	if _, both := e.values[name]; both {
		e.fault(name, fmt.Errorf("is set, and so is %s%s%s: keep one", settingsPrefix, name, fileSuffix))
		return
	}
	content, err := readFile(path)
	switch {
	case err != nil:
		e.faulty[name] = true
		e.faults = append(e.faults, fmt.Errorf("%s%s%s: read the value: %w", settingsPrefix, name, fileSuffix, err))
		return
	case len(content) > maxSettingFile:
		e.fault(name, fmt.Errorf("%s%s%s names a file of %d bytes, more than %d",
			settingsPrefix, name, fileSuffix, len(content), maxSettingFile))
		return
	}
	content = bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
	if len(content) == 0 {
		e.fault(name, fmt.Errorf("%s%s%s names an empty file", settingsPrefix, name, fileSuffix))
		return
	}
	e.values[name] = string(content)
	e.fromFile[name] = path
}

func (e *settingsEnv) refuseUnknown(raw map[string]string, known map[string]bool) {
	settings := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		full := settingsPrefix + name
		if !known[name] && !strings.HasPrefix(full, testPrefix) && !kubernetesName.MatchString(full) {
			e.fault(name, unknownSetting(name, settings))
		}
	}
}

func unknownSetting(name string, settings []string) error {
	base, isVariant := strings.CutSuffix(name, fileSuffix)
	if isVariant && slices.Contains(settings, base) {
		return fmt.Errorf("is no setting: %s%s is a path itself", settingsPrefix, base)
	}
	alike := slices.DeleteFunc(slices.Clone(settings), func(s string) bool {
		return strings.HasSuffix(s, fileSuffix) != isVariant
	})
	if nearest := tools.Nearest(name, alike); nearest != "" {
		return fmt.Errorf("is no setting; the nearest is %s%s", settingsPrefix, nearest)
	}
	return errors.New("is no setting; docs/configuration.md lists them")
}
