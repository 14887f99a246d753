package app

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SettingDoc describes one setting, for help texts and documentation.
type SettingDoc struct {
	// Section groups settings; it is set on the first of its group.
	Section string
	// Name is the whole name of the environment variable.
	Name string
	Type string
	// Default is the text that stands for not setting it; empty is none.
	Default     string
	Description string
	// File reports whether the variable with _FILE appended names a file that holds the value.
	File bool
}

// SettingDocs lists all settings in the order of Settings.
func SettingDocs() []SettingDoc {
	fields := settingFields(reflect.TypeFor[Settings]())
	docs := make([]SettingDoc, len(fields))
	for i, f := range fields {
		docs[i] = SettingDoc{
			Section:     f.section,
			Name:        settingsPrefix + f.env,
			Type:        f.typeName(),
			Default:     cmp.Or(f.shown, f.fallback),
			Description: f.describe(),
			File:        !f.isPath,
		}
		if f.required {
			docs[i].Default = "required"
		}
	}
	return docs
}

// describe is the description as a sentence, with the bounds of the value.
func (f configField) describe() string {
	text := strings.ToUpper(f.desc[:1]) + f.desc[1:]
	// Names of keys and values that start a description keep their case.
	if first, _, _ := strings.Cut(f.desc, " "); strings.ContainsAny(first, ":_") || f.isChoice(first) {
		text = f.desc
	}
	text = strings.TrimSuffix(text, ".") + "."
	switch {
	case f.min != "" && f.max != "" && f.min == f.max:
		return text
	case f.min != "" && f.max != "":
		return fmt.Sprintf("%s From %s to %s.", text, f.min, f.max)
	case f.min != "" && f.min != "0" && f.min != "0s":
		return fmt.Sprintf("%s At least %s.", text, f.min)
	}
	return text
}

func (f configField) isChoice(word string) bool {
	return word == "true" || word == "false" || slices.Contains(f.oneOf, word)
}
