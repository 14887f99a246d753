package app

import (
	"context"
	"slices"

	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/fact"
)

// suspect is a turn that the last worker may have died of, on probation. It is the turn's journal too, and sees by that when it
// gets on.
type suspect struct {
	*dedupe.Journal

	probation *probation
	draining  <-chan struct{}
	// leave ends the probation; it is set by MayStart, before the turn does anything.
	leave func()
}

// MayStart implements turn.Suspect.
func (s *suspect) MayStart(ctx context.Context, last bool) (err error) {
	s.leave, err = s.probation.enter(ctx, s.draining, last)
	return err
}

// Add implements turn.Journal. Progress ends the probation when it is durable, since until then it would not count.
func (s *suspect) Add(facts ...fact.Fact) error {
	if s.leave == nil || !progress(facts) {
		return s.Journal.Add(facts...)
	}
	return s.AddThen(func(error) { s.leave() }, facts...)
}

// Commit implements turn.Journal.
func (s *suspect) Commit(ctx context.Context, facts ...fact.Fact) error {
	err := s.Journal.Commit(ctx, facts...)
	if err == nil && s.leave != nil && progress(facts) {
		s.leave()
	}
	return err
}

// close ends the probation of a turn that was stopped. The end of one that has ended does so when it is durable.
func (s *suspect) close() {
	if s.leave != nil && s.End() == nil {
		s.leave()
	}
}

func progress(facts []fact.Fact) bool {
	return slices.ContainsFunc(facts, fact.Progress)
}
