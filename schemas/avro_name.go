package schemas

import (
	"errors"
	"strings"
)

func isPrimitive(name string) bool {
	switch name {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return true
	}
	return false
}

// isAvroName reports whether s may be one component of a name.
func isAvroName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func checkFullName(full string) error {
	for part := range strings.SplitSeq(full, ".") {
		if !isAvroName(part) {
			return errors.New("its name is not valid")
		}
	}
	return nil
}

// qualify returns the full name of name in a namespace.
func qualify(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

// unqualified returns the last component of a full name.
func unqualified(full string) string {
	return full[strings.LastIndexByte(full, '.')+1:]
}

// stringList reads a JSON array of strings; nothing is an empty one.
func stringList(raw any) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	list, ok := raw.([]any)
	if !ok {
		return nil, errors.New("no list of names")
	}
	out := make([]string, len(list))
	for i, v := range list {
		if out[i], ok = v.(string); !ok {
			return nil, errors.New("no list of names")
		}
	}
	return out, nil
}
