package app

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parseYAML returns the one document of a file.
func parseYAML(content []byte) (root ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("is not YAML: %v", p)
		}
	}()
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, fmt.Errorf("parse the YAML: %w", err)
	}
	docs := slices.DeleteFunc(file.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil })
	switch len(docs) {
	case 0:
		return nil, errors.New("is empty; a manifest starts with version: 1")
	case 1:
		return docs[0].Body, nil
	}
	return nil, errors.New("holds several YAML documents; a manifest is one")
}

// anchorCollector is a visitor that keeps what each anchor names.
type anchorCollector map[string]ast.Node

// Visit implements ast.Visitor.
func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		c[anchor.Name.GetToken().Value] = anchor.Value
	}
	return c
}

// resolve follows aliases and anchors to the node they stand for; nil when there is none, which is reported.
func (d *manifestDecoder) resolve(n ast.Node, path string) ast.Node {
	// An alias may name itself; no sane file needs more hops.
	for range 16 {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			target, ok := d.anchors[name]
			if !ok {
				d.fault(path, "there is no anchor &%s", name)
				return nil
			}
			n = target
		case *ast.TagNode:
			d.fault(path, "YAML tags (%s) have no meaning here", node.Start.Value)
			return nil
		default:
			return n
		}
	}
	d.fault(path, "the alias leads nowhere")
	return nil
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

// nodeName says what a node is, for a fault.
func nodeName(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode:
		return "a number"
	case *ast.InfinityNode, *ast.NanNode:
		return "an infinite or no number"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	}
	return strings.ToLower(n.Type().String())
}

// wholeNumber gives the value of an integer node that an int64 holds.
func wholeNumber(n *ast.IntegerNode) (int64, bool) {
	switch value := n.Value.(type) {
	case int64:
		return value, true
	case uint64:
		if value <= math.MaxInt64 {
			return int64(value), true
		}
	}
	return 0, false
}
