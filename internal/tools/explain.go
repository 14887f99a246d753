package tools

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const maxMisfits = 3

// explain says where a value does not fit its schema and what was expected there. It names no value, only places, keys and what
// the schema says.
func explain(err error) string {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return "$: the value cannot be compared with the schema"
	}
	leaves := collect(nil, invalid)
	slices.Sort(leaves)
	leaves = slices.Compact(leaves)
	more := ""
	if n := len(leaves) - maxMisfits; n > 0 {
		leaves, more = leaves[:maxMisfits], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(leaves, "; ") + more
}

// collect appends what is wrong at the leaves. Of alternatives only the nearest counts: the one whose misfit lies deepest.
func collect(leaves []string, e *jsonschema.ValidationError) []string {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if near := nearestBranch(e); near != nil {
			return collect(leaves, near)
		}
		return append(leaves, location(e)+": expected "+cmp.Or(types(e), "a value that fits one of the alternatives"))
	}
	if len(e.Causes) == 0 {
		return append(leaves, describeLeaf(e)...)
	}
	for _, cause := range e.Causes {
		leaves = collect(leaves, cause)
	}
	return leaves
}

// nearestBranch returns the alternative that the value got furthest into, nil if that does not decide. A nullable object that is
// wrong inside is explained by its inside, not by not being null.
func nearestBranch(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return nil
	}
	depths := make([]int, len(e.Causes))
	for i, cause := range e.Causes {
		depths[i] = depth(cause)
	}
	best := slices.Max(depths)
	if best == len(e.InstanceLocation) && len(e.Causes) > 1 {
		return onlyOther(e)
	}
	return e.Causes[slices.Index(depths, best)]
}

// onlyOther returns the alternative that is left when those of another type are taken away.
func onlyOther(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	var left []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		if _, ok := cause.ErrorKind.(*kind.Type); !ok {
			left = append(left, cause)
		}
	}
	if len(left) != 1 {
		return nil
	}
	return left[0]
}

// types lists the types that the alternatives want, if all of them failed by that.
func types(e *jsonschema.ValidationError) string {
	var want []string
	for _, cause := range e.Causes {
		k, ok := cause.ErrorKind.(*kind.Type)
		if !ok {
			return ""
		}
		want = append(want, k.Want...)
	}
	return strings.Join(want, " or ")
}

func depth(e *jsonschema.ValidationError) int {
	d := len(e.InstanceLocation)
	for _, cause := range e.Causes {
		d = max(d, depth(cause))
	}
	return d
}

func describeLeaf(e *jsonschema.ValidationError) []string {
	at := location(e)
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return each(k.Missing, func(name string) string { return at + member(name) + ": missing" })
	case *kind.AdditionalProperties:
		return each(k.Properties, func(name string) string { return at + member(name) + ": no such property" })
	case *kind.Type:
		return []string{at + ": expected " + strings.Join(k.Want, " or ") + ", got " + k.Got}
	case *kind.Enum:
		return []string{at + ": expected one of " + alternatives(k.Want)}
	case *kind.Const:
		return []string{at + ": expected " + cut(string(appendValue(nil, k.Want)), maxName)}
	case *kind.Format:
		return []string{at + ": expected the format " + k.Want}
	case *kind.Pattern:
		return []string{at + ": expected a match of " + cut(k.Want, maxName)}
	case *kind.MinLength:
		return []string{at + ": expected at least " + strconv.Itoa(k.Want) + " characters"}
	case *kind.MaxLength:
		return []string{at + ": expected at most " + strconv.Itoa(k.Want) + " characters"}
	case *kind.MinItems:
		return []string{at + ": expected at least " + strconv.Itoa(k.Want) + " items"}
	case *kind.MaxItems:
		return []string{at + ": expected at most " + strconv.Itoa(k.Want) + " items"}
	case *kind.Minimum:
		return []string{at + ": expected at least " + k.Want.RatString()}
	case *kind.Maximum:
		return []string{at + ": expected at most " + k.Want.RatString()}
	case *kind.ExclusiveMinimum:
		return []string{at + ": expected more than " + k.Want.RatString()}
	case *kind.ExclusiveMaximum:
		return []string{at + ": expected less than " + k.Want.RatString()}
	case *kind.MultipleOf:
		return []string{at + ": expected a multiple of " + k.Want.RatString()}
	}
	return []string{at + ": does not fit " + cmp.Or(strings.Join(e.ErrorKind.KeywordPath(), "/"), "the schema")}
}

func each(names []string, text func(string) string) []string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = text(name)
	}
	return texts
}

func alternatives(want []any) string {
	texts := make([]string, 0, min(len(want), maxNamesListed))
	for _, v := range want[:cap(texts)] {
		texts = append(texts, cut(string(appendValue(nil, v)), maxModelName))
	}
	text := strings.Join(texts, ", ")
	if len(want) > len(texts) {
		text += ", …"
	}
	return text
}

// location is the JSON path of a misfit.
func location(e *jsonschema.ValidationError) string {
	var b strings.Builder
	b.WriteByte('$')
	for _, part := range e.InstanceLocation {
		b.WriteString(member(part))
	}
	return b.String()
}

// member is one part of a JSON path: .name, or [n] and ["name"] where a plain name would not do.
func member(name string) string {
	if _, err := strconv.ParseUint(name, 10, 31); err == nil {
		return "[" + name + "]"
	}
	name = cut(name, maxModelName)
	for i := range len(name) {
		if c := name[i]; !letter(c) && c != '_' && c != '-' && (c < '0' || c > '9') {
			return "[" + string(appendString(nil, name)) + "]"
		}
	}
	return "." + name
}
