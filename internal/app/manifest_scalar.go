package app

import (
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// scalar decodes one value that is neither mapping nor list, and checks it against its tags.
func (d *manifestDecoder) scalar(n ast.Node, path string, v reflect.Value, f configField) {
	var want string
	switch dst := v.Addr().Interface().(type) {
	case *time.Duration:
		want = d.duration(n, dst)
	case *ByteSize:
		want = d.size(n, dst)
	case *ManifestGate:
		want = d.gate(n, dst)
	default:
		want = d.basic(n, v)
	}
	if want != "" {
		d.fault(path, "wants %s, not %s", want, shownNode(n))
		return
	}
	if v.Kind() == reflect.String && f.tag.Get("text") != "true" && strings.Contains(v.String(), "${") {
		d.fault(path, "${NAME} is not read from the environment here")
		return
	}
	if err := f.check(v); err != nil {
		d.fault(path, "%s", err)
	}
}

// basic decodes by kind; it returns what it wants when the node is something else, as the others below do.
func (d *manifestDecoder) basic(n ast.Node, v reflect.Value) string {
	//exhaustive:ignore // A test walks all fields of the manifest.
	switch v.Kind() {
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return "true or false"
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Int64:
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			return "a whole number"
		}
		value, fits := wholeNumber(i)
		if !fits {
			return "a whole number of 64 bits"
		}
		v.SetInt(value)
	case reflect.Float64:
		value, ok := numberOf(n)
		if !ok {
			return "a number"
		}
		v.SetFloat(value)
	default:
		text, ok := textOf(n)
		if !ok {
			return "text"
		}
		v.SetString(text)
	}
	return ""
}

func (d *manifestDecoder) duration(n ast.Node, dst *time.Duration) string {
	const want = "a duration such as 500ms, 30s, 10m or 15d"
	text, ok := textOf(n)
	if !ok {
		return want
	}
	value, err := parseDuration(text)
	if err != nil {
		return want
	}
	*dst = value
	return ""
}

func (d *manifestDecoder) size(n ast.Node, dst *ByteSize) string {
	const want = "a size such as 512KiB, 1MiB or 2GiB, or a number of bytes"
	if i, ok := n.(*ast.IntegerNode); ok {
		value, fits := wholeNumber(i)
		if !fits || value < 0 {
			return want
		}
		*dst = ByteSize(value)
		return ""
	}
	text, ok := textOf(n)
	if !ok || dst.UnmarshalText([]byte(text)) != nil {
		return want
	}
	return ""
}

func (d *manifestDecoder) gate(n ast.Node, dst *ManifestGate) string {
	if b, ok := n.(*ast.BoolNode); ok {
		if b.Value {
			*dst = ManifestGateAlways
		}
		return ""
	}
	text, ok := textOf(n)
	if !ok || strings.TrimSpace(text) == "" {
		return "true, false or a condition"
	}
	*dst = ManifestGate(text)
	return ""
}

// shownNode repeats a short scalar, so that it is found; a text that is longer may be anything.
func shownNode(n ast.Node) string {
	text := n.GetToken().Value
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if len(text) <= 32 {
			return nodeName(n) + " (" + text + ")"
		}
	}
	return nodeName(n)
}

func textOf(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	}
	return "", false
}

func numberOf(n ast.Node) (float64, bool) {
	switch node := n.(type) {
	case *ast.IntegerNode:
		value, ok := wholeNumber(node)
		return float64(value), ok
	case *ast.FloatNode:
		return node.Value, !math.IsNaN(node.Value) && !math.IsInf(node.Value, 0)
	}
	return 0, false
}
