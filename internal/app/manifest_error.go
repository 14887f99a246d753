package app

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// ManifestError is one fault of a manifest.
type ManifestError struct {
	File string
	// Line counts from 1; 0 is the file as a whole.
	Line int
	// Path is where in the manifest, such as agents.support.tools[1]; empty is the manifest as a whole.
	Path    string
	Message string
}

// Error returns file:line: path: message.
func (e *ManifestError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	if e.Path != "" {
		at += ": " + e.Path
	}
	return at + ": " + e.Message
}

// manifestFaults collects the faults of one manifest, and the lines of the paths that were read.
type manifestFaults struct {
	file   string
	lines  map[string]int
	faults []*ManifestError
}

// fault adds one at a path that was read, or below one.
func (d *manifestFaults) fault(path, format string, args ...any) {
	d.faultAt(d.lines[path], path, format, args...)
}

func (d *manifestFaults) faultAt(line int, path, format string, args ...any) {
	d.faults = append(d.faults, &ManifestError{
		File: d.file, Line: line, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// err joins the faults in the order of the file.
func (d *manifestFaults) err() error {
	slices.SortStableFunc(d.faults, func(a, b *ManifestError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	errs := make([]error, len(d.faults))
	for i, f := range d.faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// below is the path of a key in the mapping at path.
func below(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// item is the path of an item in the list at path.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
