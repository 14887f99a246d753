package consumer

// Status is what the probes and an operator want to know.
type Status struct {
	// Live says that the worker makes progress; LiveReason why not.
	Live       bool   `json:"live"`
	LiveReason string `json:"live_reason,omitempty"`
	// Ready says that it is in its group, its partitions are restored and it takes turns; ReadyReason why not. A worker without
	// partitions is ready.
	Ready       bool   `json:"ready"`
	ReadyReason string `json:"ready_reason,omitempty"`
	// Member is the id that the group knows the worker by.
	Member string `json:"member,omitempty"`
	// InFlight is how many turns are delivered and not done.
	InFlight   int               `json:"in_flight"`
	Partitions []PartitionStatus `json:"partitions"`
}

// PartitionStatus is one partition of a Status.
type PartitionStatus struct {
	Partition int32  `json:"partition"`
	Epoch     uint64 `json:"epoch"`
	State     string `json:"state"`
	// Fault is why it is halted, Waiting what it waits for.
	Fault   string `json:"fault,omitempty"`
	Waiting string `json:"waiting,omitempty"`
	Paused  bool   `json:"paused,omitempty"`
	// InFlight turns are delivered and not done, of which Queued wait for an earlier turn of their session. Backlog records are
	// fetched and not delivered.
	InFlight int `json:"in_flight"`
	Queued   int `json:"queued"`
	Backlog  int `json:"backlog"`
	// Effects and EffectBytes wait for their commit.
	Effects     int   `json:"effects"`
	EffectBytes int64 `json:"effect_bytes"`
	// Committed is the committed offset, HighWater the end of the log as last heard of; -1 when not known.
	Committed int64 `json:"committed"`
	HighWater int64 `json:"high_water"`
	// Restore is set while the partition is restored.
	Restore *RestoreStatus `json:"restore,omitempty"`
}

// RestoreStatus is how far a restore has come.
type RestoreStatus struct {
	// How says whether it went on from local state, or why not.
	How string `json:"how,omitempty"`
	// Position and Target are changelog offsets; Percent is how much of the way between is done.
	Position int64   `json:"position"`
	Target   int64   `json:"target"`
	Percent  float64 `json:"percent"`
	// Records and Bytes were applied so far, keys and values uncompressed.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// SecondsLeft is an estimate at the rate so far; 0 when there is none.
	SecondsLeft float64 `json:"seconds_left,omitempty"`
	// Waiting is what it waits for.
	Waiting string `json:"waiting,omitempty"`
}

// Status returns how the worker is now.
func (w *Worker) Status() Status {
	s := Status{InFlight: len(w.slots), Partitions: []PartitionStatus{}}
	if g := w.group(); g != nil {
		s.Member, _ = g.GroupMetadata()
	}
	for _, p := range w.all() {
		s.Partitions = append(s.Partitions, p.status())
	}
	s.LiveReason, s.ReadyReason = w.notLive(), w.notReady(s.Partitions)
	s.Live, s.Ready = s.LiveReason == "", s.ReadyReason == ""
	return s
}

func (w *Worker) notLive() string {
	if err := w.failure(); err != nil {
		return err.Error()
	}
	if w.pollStuck() {
		return errPollStuck.Error()
	}
	if w.stalled() {
		return errStalled.Error()
	}
	return ""
}

func (w *Worker) notReady(partitions []PartitionStatus) string {
	w.mu.Lock()
	joined, closing, failure := w.mu.joined && !w.mu.outside, w.mu.closing, w.mu.failure
	w.mu.Unlock()
	t := w.troubled()
	switch {
	case failure != nil:
		return failure.Error()
	case t != nil:
		return "the brokers refuse the worker: " + t.err.Error()
	case closing:
		return "the worker drains"
	case !joined:
		return "the worker is not in its group"
	}
	for _, p := range partitions {
		switch {
		case p.Fault != "":
			return "a partition is halted: " + p.Fault
		case p.State == stateAssigned.String(), p.State == stateRestoring.String():
			return "partitions are being restored"
		}
	}
	return ""
}

func (p *partition) status() PartitionStatus {
	now := p.is()
	s := PartitionStatus{Partition: p.id, Epoch: p.epoch, State: now.String(), InFlight: len(p.window)}
	if now.commits() {
		s.Effects, s.EffectBytes = p.store.Pending()
	}
	if now == stateRestoring {
		s.Restore = p.restore.status()
	}
	s.Paused = p.paused.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Queued, s.Backlog = p.mu.queued, len(p.mu.backlog)
	s.Committed, s.HighWater, s.Waiting = p.mu.committed, p.mu.highWater, p.mu.waiting
	if p.mu.fault != nil {
		s.Fault = p.mu.fault.Error()
	}
	return s
}
