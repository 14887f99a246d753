package dedupe

import (
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Rejected is the turn:rejected event of a turn that could be decoded but not accepted, for who waits for an answer. Its id
// comes from the record's position, so that a repeat has the same.
func (c *Codec) Rejected(ev *schemas.TurnEvent, origin fact.Origin, reason *schemas.Error) ([]statestore.Output, error) {
	out := &schemas.TurnOutput{
		Envelope: schemas.Envelope{
			EventID: fmt.Sprintf("%s/%d/%d/%s", origin.Topic, origin.Partition, origin.Offset, schemas.TypeTurnRejected),
			Type:    schemas.TypeTurnRejected, TurnID: ev.TurnID, SessionID: ev.SessionID, Agent: ev.Agent,
			At: c.cfg.Now(), Worker: c.cfg.Worker, SchemaVersion: schemas.Version, Metadata: ev.Metadata,
		},
		Code: reason.Code, Message: reason.Detail(),
		Topic: origin.Topic, Partition: &origin.Partition, Offset: &origin.Offset,
	}
	value, err := c.cfg.TurnEncoder.EncodeTurn(out)
	if err != nil {
		return nil, fmt.Errorf("encode turn:rejected: %w", err)
	}
	return []statestore.Output{{
		Topic: c.cfg.TurnTopic, Key: []byte(ev.SessionID), Value: value, Partition: -1,
		Headers: c.headers(&memory{}, &out.Envelope, c.turnHeaders, nil),
	}}, nil
}
