package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// echo is a handler that writes what it was asked: an output per turn, a count per session in the state, and the turn's record, so
// that a turn which comes again is known.
type echo struct {
	topic string
	// on is called as a turn runs; an error ends it so.
	on func(ctx context.Context, a *Assignment, rec *Record) error
	// value gives what else the output of a turn holds.
	value func(rec *Record) []byte
	// open and resume are called as a partition opens.
	open   func(a *Assignment) error
	resume func(a *Assignment) []Task

	mu        sync.Mutex
	ran       []string
	cancelled []string
	opened    []*Assignment
}

func (e *echo) Open(_ context.Context, a *Assignment) (PartitionHandler, error) {
	e.mu.Lock()
	e.opened = append(e.opened, a)
	e.mu.Unlock()
	if e.open != nil {
		if err := e.open(a); err != nil {
			return nil, err
		}
	}
	return &echoPartition{echo: e, a: a}, nil
}

func (e *echo) assignments() []*Assignment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.opened)
}

func (e *echo) runs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.ran)
}

type echoPartition struct {
	*echo

	a *Assignment
}

func (p *echoPartition) Resume(context.Context) ([]Task, error) {
	if p.resume == nil {
		return nil, nil
	}
	return p.resume(p.a), nil
}

func (p *echoPartition) Handle(ctx context.Context, rec *Record) error {
	p.mu.Lock()
	p.ran = append(p.ran, rec.Event.TurnID)
	p.mu.Unlock()
	if p.on != nil {
		if err := p.on(ctx, p.a, rec); err != nil {
			return err
		}
	}
	return p.complete(rec)
}

func (p *echoPartition) complete(rec *Record) error {
	turnKey, countKey := "turn/"+rec.Event.TurnID, "count/"+rec.Event.SessionID
	if _, known, err := p.a.State.Get(turnKey); err != nil || known {
		return errors.Join(err, p.add(&statestore.Effect{Offset: rec.Offset, Urgent: true}))
	}
	value, _, err := p.a.State.Get(countKey)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	count := uint64(1)
	if value != nil {
		count += binary.BigEndian.Uint64(value[1:])
	}
	value, headers := fmt.Appendf(nil, "%s %d", rec.Event.TurnID, count), []statestore.Header{{Key: "kind", Value: []byte("echo")}}
	if p.value != nil {
		value = append(value, p.value(rec)...)
	}
	return p.add(&statestore.Effect{
		Owner: &echoed{session: rec.Event.SessionID, rec: rec},
		Mutations: []statestore.Mutation{
			{Op: statestore.OpSet, Key: turnKey, Value: []byte{statestore.Format}},
			{Op: statestore.OpSet, Key: countKey, Value: binary.BigEndian.AppendUint64([]byte{statestore.Format}, count)},
			{Op: statestore.OpAppend, Key: "log/" + rec.Event.SessionID, Value: []byte(rec.Event.TurnID + "\n")},
		},
		Outputs: []statestore.Output{{
			Topic: p.topic, Key: rec.Key, Value: value, Partition: -1, Headers: headers,
		}},
		Offset: rec.Offset, Urgent: true,
	})
}

// echoed owns the effect of one turn.
type echoed struct {
	session string
	rec     *Record
}

func (e *echoed) LaneKey() string { return e.session }

func (p *echoPartition) add(e *statestore.Effect) error {
	if err := p.a.State.Add(e); err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	return nil
}

func (p *echoPartition) Cancel(_ context.Context, rec *Record) error {
	p.mu.Lock()
	p.cancelled = append(p.cancelled, rec.Event.TurnID)
	p.mu.Unlock()
	return p.add(&statestore.Effect{Offset: rec.Offset})
}

func (p *echoPartition) Rejected(rec *Record, reason *schemas.Error) []statestore.Output {
	return []statestore.Output{{Topic: p.topic, Key: rec.Key, Value: []byte("rejected " + rec.Event.TurnID + " " + string(reason.Code)), Partition: -1}}
}

// forgetOften deletes what a session's earlier turn has left, so that the changelog has tombstones.
func forgetOften(_ context.Context, a *Assignment, rec *Record) error {
	err := a.State.Add(&statestore.Effect{Offset: statestore.NoOffset, Mutations: []statestore.Mutation{
		{Op: statestore.OpSet, Key: "seen/" + rec.Event.TurnID, Value: []byte{statestore.Format}},
	}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	var old []string
	if err := a.State.Scan("seen/", func(key string, _ []byte) error {
		old = append(old, key)
		return nil
	}); err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	e := &statestore.Effect{Offset: statestore.NoOffset}
	for _, key := range old[:len(old)/2] {
		e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpDelete, Key: key})
	}
	if err := a.State.Add(e); err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	return nil
}

// holdTurn is an echo that holds one turn until it is released.
func holdTurn(id string, release <-chan struct{}) *echo {
	return holdTurns(func(turn string) bool { return turn == id }, release)
}

// holdTurns is an echo that holds some turns until they are released, with nil until they are cancelled.
func holdTurns(held func(turn string) bool, release <-chan struct{}) *echo {
	return &echo{on: func(ctx context.Context, _ *Assignment, rec *Record) error {
		if !held(rec.Event.TurnID) {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}}
}
