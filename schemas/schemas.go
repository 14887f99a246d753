// Package schemas is the wire contract of Lathe, for producers and consumers of its topics: the Avro schemas under this
// folder, the Go types that mirror them, the codes and statuses that appear in events, and the codecs that turn records
// into types and types into records, in JSON and in Avro.
//
// Everything here is safe for concurrent use unless its comment says otherwise.
package schemas

// Version is the schema_version that every output event of this release carries.
const Version = 1

// Header is one record header. Kafka allows repeated keys; where one is expected, the last counts.
type Header struct {
	Key   string
	Value []byte
}
