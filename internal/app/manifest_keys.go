package app

import (
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/lathe-run/lathe/internal/tools"
)

// refuseKey reports a key that has no field: a feature of a later release by its name, else as unknown. A feature that is
// expressly not asked for is accepted.
func (d *manifestDecoder) refuseKey(e manifestEntry, fields []configField, later map[string]string) {
	if feature, ok := later[e.key]; ok {
		n := d.resolve(e.value, e.path)
		if off, isBool := n.(*ast.BoolNode); n == nil || n.Type() == ast.NullType || isBool && !off.Value {
			return
		}
		if feature == e.key {
			d.fault(e.path, "%s is not supported yet by this release", e.key)
			return
		}
		d.fault(e.path, "%s is not supported yet by this release (%s)", e.key, feature)
		return
	}
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	if nearest := tools.Nearest(e.key, keys); nearest != "" {
		d.fault(e.path, "unknown key; the nearest is %s", nearest)
		return
	}
	d.fault(e.path, "unknown key; the keys here are %s", strings.Join(keys, ", "))
}

// laterKeys reads the later tags of a struct: keys of features that a later release has, and what to call the feature.
func laterKeys(t reflect.Type) map[string]string {
	keys := map[string]string{}
	for sf := range t.Fields() {
		for entry := range strings.SplitSeq(sf.Tag.Get("later"), ",") {
			key, feature, named := strings.Cut(entry, "=")
			if !named {
				feature = key
			}
			if key != "" {
				keys[key] = feature
			}
		}
	}
	return keys
}

// setManifestDefaults sets each field of a struct to its default.
func setManifestDefaults(v reflect.Value) {
	for _, f := range manifestFields(v.Type()) {
		// A setting's default is not for the manifest: what an agent does not set, the setting says.
		if f.fallback != "" && f.env == "" {
			setConfigText(v.FieldByIndex(f.index), f.fallback)
		}
	}
}

// defaultTurnLimits are the defaults of the LATHE_TURN_ settings.
func defaultTurnLimits() TurnLimits {
	var l TurnLimits
	v := reflect.ValueOf(&l).Elem()
	for _, f := range settingFields(v.Type()) {
		setConfigText(v.FieldByIndex(f.index), f.fallback)
	}
	return l
}
