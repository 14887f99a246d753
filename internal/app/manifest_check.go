package app

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/lathe-run/lathe/internal/tools"
)

var (
	// manifestName is what agents and models may be called: the name of an agent stands in every event.
	manifestName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	toolName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]{0,127}$`)
	toolGlob     = regexp.MustCompile(`^[A-Za-z*][A-Za-z0-9._/*-]{0,127}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// manifestChecker looks at what one field alone cannot say, and reads what the manifest names.
type manifestChecker struct {
	*manifestDecoder
	dir string
	env func(string) (string, bool)
}

func (c *manifestChecker) check(m *Manifest) {
	models := slices.Sorted(maps.Keys(m.Models))
	for name, agent := range m.Agents {
		path := below("agents", name)
		c.name(path, name, manifestName)
		c.agent(path, &agent, models)
		m.Agents[name] = agent
	}
	for name, model := range m.Models {
		path := below("models", name)
		c.name(path, name, manifestName)
		c.model(path, &model)
		m.Models[name] = model
	}
	for name, tool := range m.Tools {
		path := below("tools", name)
		c.name(path, name, toolName)
		c.length(below(path, "version"), tool.Version, 128)
		c.length(below(path, "description"), tool.Description, 4096)
	}
}

func (c *manifestChecker) name(path, name string, allowed *regexp.Regexp) {
	if !allowed.MatchString(name) {
		c.fault(path, "%.64q is not a name that is allowed here: it must match %s", name, allowed)
	}
}

func (c *manifestChecker) length(path, text string, most int) {
	if n := utf8.RuneCountInString(text); n > most {
		c.fault(path, "has %d characters, more than %d", n, most)
	}
}

func (c *manifestChecker) agent(path string, a *ManifestAgent, models []string) {
	if a.Model != "" && !slices.Contains(models, a.Model) {
		at := below(path, "model")
		if nearest := tools.Nearest(a.Model, models); nearest != "" {
			c.fault(at, "there is no model %q; the nearest is %s", a.Model, nearest)
		} else {
			c.fault(at, "there is no model %q under models", a.Model)
		}
	}
	for i, tool := range a.Tools {
		at := item(below(path, "tools"), i)
		// An item of the wrong type was reported and is empty.
		switch {
		case tool == "":
		case !toolGlob.MatchString(tool):
			c.fault(at, "%.64q is neither the name of a tool nor one with *", tool)
		case slices.Contains(a.Tools[:i], tool):
			c.fault(at, "%s stands here twice", tool)
		}
	}
	if a.SystemFile != "" {
		at := below(path, "system_file")
		if a.System != "" {
			c.fault(at, "cannot be used with system: keep one")
		}
		a.System = string(c.file(at, a.SystemFile))
	}
	a.said = a.Limits
}

// file reads a text file that the manifest names. Relative paths start at the manifest.
func (c *manifestChecker) file(path, name string) []byte {
	content, err := readCapped(c.locate(name), maxManifestText)
	switch {
	case err != nil:
		c.fault(path, "%s", err)
		return nil
	case !utf8.Valid(content):
		c.fault(path, "%s is not UTF-8", name)
		return nil
	}
	return content
}

func (c *manifestChecker) locate(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

func (c *manifestChecker) model(path string, m *ManifestModel) {
	switch m.Provider {
	case "scripted":
		c.scripted(path, m)
		return
	case "openai", "anthropic":
	default:
		// The decoder reported it.
		return
	}
	if m.Model == "" {
		c.missing(path, "model", "is required by the provider %s", m.Provider)
	}
	if m.Script != "" {
		c.fault(below(path, "script"), "is for the provider scripted")
	}
	if m.BaseURL != "" && !isPlainURL(m.BaseURL) {
		// It is not repeated: someone may have put a password into it.
		c.fault(below(path, "base_url"), "must be an http or https URL without user and password")
	}
	// A scripted model has neither: it costs nothing to ask.
	m.Timeout = cmp.Or(m.Timeout, defaultModelTimeout)
	m.Concurrency = cmp.Or(m.Concurrency, defaultModelConcurrency)
	c.apiKey(path, m)
}

// missing reports a key that is not there, at the line of its mapping.
func (c *manifestChecker) missing(path, key, format string, args ...any) {
	at := below(path, key)
	c.faultAt(cmp.Or(c.lines[at], c.lines[path]), at, format, args...)
}

func (c *manifestChecker) scripted(path string, m *ManifestModel) {
	for key, set := range map[string]bool{
		"base_url": m.BaseURL != "", "api_key_env": m.APIKeyEnv != "", "api_key_file": m.APIKeyFile != "",
	} {
		if set {
			c.fault(below(path, key), "has no meaning for the provider scripted")
		}
	}
	m.Model = cmp.Or(m.Model, "scripted")
	if m.Script == "" {
		c.missing(path, "script", "is required by the provider scripted")
		return
	}
	m.Script = c.locate(m.Script)
	if info, err := os.Stat(m.Script); err != nil {
		c.fault(below(path, "script"), "%s", err)
	} else if !info.Mode().IsRegular() {
		c.fault(below(path, "script"), "%s is not a file", m.Script)
	}
}

func (c *manifestChecker) apiKey(path string, m *ManifestModel) {
	switch {
	case m.APIKeyEnv != "" && m.APIKeyFile != "":
		c.fault(below(path, "api_key_file"), "cannot be used with api_key_env: keep one")
	case m.APIKeyEnv != "":
		at := below(path, "api_key_env")
		if !variableName.MatchString(m.APIKeyEnv) {
			// It may well be the key itself.
			c.fault(at, "must be the name of an environment variable, not the key")
			return
		}
		value, _ := c.env(m.APIKeyEnv)
		if value == "" {
			c.fault(at, "the environment variable %s is not set", m.APIKeyEnv)
		}
		m.APIKey = Secret(value)
	case m.APIKeyFile != "":
		at := below(path, "api_key_file")
		before := len(c.faults)
		key := bytes.TrimSpace(c.file(at, m.APIKeyFile))
		if len(key) == 0 && len(c.faults) == before {
			c.fault(at, "%s is empty", m.APIKeyFile)
		}
		m.APIKey, m.APIKeyFile = Secret(key), c.locate(m.APIKeyFile)
	case m.BaseURL == "":
		c.missing(path, "api_key_env", "is required, or api_key_file, unless base_url names a server that needs none")
	}
}
