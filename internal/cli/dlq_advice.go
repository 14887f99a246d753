package cli

import "github.com/lathe-run/lathe/schemas"

// advice is what to do about a dead letter, by its reason.
func advice(l *letter) string {
	if !l.ours {
		return "No worker wrote this record: something else writes to the dead-letter topic. It cannot be replayed."
	}
	text := adviceFor(l.dead.Reason)
	if l.dead.Cut {
		text += "\nThe value here is only its beginning, so it cannot be replayed from here. The whole record stands where it came from until " +
			"retention removes it; else ask its producer, size and hash tell that it is the same."
	}
	return text
}

func adviceFor(reason schemas.Code) string {
	for _, a := range reasonAdvice() {
		if a.reason == reason {
			return a.text
		}
	}
	return "This build does not know the reason; a newer worker wrote it. See the documentation of that release."
}

type reasonText struct {
	reason schemas.Code
	text   string
}

// reasonAdvice is the advice on every reason there is.
func reasonAdvice() []reasonText {
	return []reasonText{
		{schemas.CodeConflict, "A turn with this turn_id and another content was taken before; it goes on untouched, and a replay will be refused again. If this is " +
			"a request of its own, let the producer send it under a new turn_id; if it is a retry, the producer changed it on the way."},
		{schemas.CodeInvalidTurn, "The event was read, and a field of it cannot be taken; the detail says which. The same bytes will be refused again. No turn has " +
			"begun, so the turn_id is free: let the producer send it again, corrected. If a newer release takes the field, update the workers and replay it."},
		{schemas.CodeKeyMismatch, "The record's key is not its session_id, so the order of the session could not be kept. Correct the producer. A replay with --rekey " +
			"sends it under its session_id; if producers mean to use other keys, set LATHE_TURNS_PARTITIONER=any at the workers."},
		{schemas.CodePartitionMismatch, "The producer put the key on a partition where other producers would not. Correct it (librdkafka: partitioner=murmur2_random), or " +
			"set LATHE_TURNS_PARTITIONER to what all of them use. A replay puts the record where its key belongs."},
		{schemas.CodeSchemaUnknown, "The schema that wrote it was not found. Register it, or set LATHE_SCHEMA_REGISTRY_URL to the registry that the producer uses " +
			"(here and at the workers); then replay it."},
		{schemas.CodeTombstone, "The record has no value, so there is nothing to replay. To cancel a turn, send an event of type cancel."},
		{schemas.CodeTooLarge, "The record is larger than a worker takes. Make it smaller; or raise LATHE_MAX_RECORD_BYTES at all workers (and here), and " +
			"max.message.bytes of the topics, and replay it."},
		{schemas.CodeUndecodable, "The bytes are no turn event, so no replay helps, and nobody was told, since no id could be read. Find the producer by key, " +
			"time and headers, and let it send the turn again."},
		{schemas.CodeUnknownAgent, "No worker knew the agent. No turn has begun, so the turn_id is free. Add the agent to the manifest (or correct its name in the " +
			"producer), restart the workers, and replay it: it is the same turn. An event that names no agent needs a manifest with only one."},
	}
}
