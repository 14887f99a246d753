package schemas

import (
	"embed"
	"fmt"
	"path"
)

// Record names one of the four records of the contract.
type Record string

// The records, by the name they have in Avro.
const (
	RecordTurnEvent   Record = "TurnEvent"
	RecordToolEvent   Record = "ToolEvent"
	RecordTurnOutput  Record = "TurnOutput"
	RecordStatusEvent Record = "StatusEvent"
)

//go:embed turn_event.avsc tool_event.avsc turn_output.avsc status_event.avsc released
var avscFiles embed.FS

// Records returns the records of the contract.
func Records() []Record {
	return []Record{RecordTurnEvent, RecordToolEvent, RecordTurnOutput, RecordStatusEvent}
}

// Schema returns the record's Avro schema as it stands in its .avsc file: what is registered under its topic's subject.
// It panics if r is none of Records.
func (r Record) Schema() string {
	b, err := avscFiles.ReadFile(r.file())
	if err != nil {
		panic(fmt.Sprintf("schemas: no record %q", string(r)))
	}
	return string(b)
}

// Fingerprint returns the CRC-64-AVRO of the record's schema, which marks records in single-object encoding.
func (r Record) Fingerprint() uint64 { return r.parse().fingerprint() }

// file is the name of the record's file, empty if there is no such record.
func (r Record) file() string {
	switch r {
	case RecordTurnEvent:
		return "turn_event.avsc"
	case RecordToolEvent:
		return "tool_event.avsc"
	case RecordTurnOutput:
		return "turn_output.avsc"
	case RecordStatusEvent:
		return "status_event.avsc"
	}
	return ""
}

// parse returns the record's parsed schema. The files are part of the program, so a fault in them is a panic.
func (r Record) parse() *avroType {
	t, err := parseAvroSchema(r.Schema(), schemaLimits{})
	if err != nil {
		panic(fmt.Sprintf("schemas: %s: %v", r.file(), err))
	}
	return t
}

// released returns the texts of the record's schema in all releases, oldest first.
func (r Record) released() []string {
	dirs, err := avscFiles.ReadDir("released")
	if err != nil {
		panic(fmt.Sprintf("schemas: read the released schemas: %v", err))
	}
	var texts []string
	for _, d := range dirs {
		if b, err := avscFiles.ReadFile(path.Join("released", d.Name(), r.file())); err == nil {
			texts = append(texts, string(b))
		}
	}
	return texts
}
