package consumer

// state is where an assignment is in its life.
//
//	assigned -> restoring -> running -> draining -> gone
//	    |           |           |           |
//	    +-----------+-----------+-----------+--> halted or gone, at any time
type state int32

const (
	// stateAssigned partitions wait for their committed offset.
	stateAssigned state = iota
	// stateRestoring partitions read their changelog.
	stateRestoring
	// stateRunning partitions take records.
	stateRunning
	// stateDraining partitions begin nothing and finish what runs.
	stateDraining
	// stateGone partitions are no longer ours, or are let go of.
	stateGone
	// stateHalted partitions have a fault: they stay ours, so that no other worker runs into the same, and do nothing.
	stateHalted
)

// String returns the state's name, for logs and the status.
func (s state) String() string {
	switch s {
	case stateAssigned:
		return "assigned"
	case stateRestoring:
		return "restoring"
	case stateRunning:
		return "running"
	case stateDraining:
		return "draining"
	case stateGone:
		return "gone"
	case stateHalted:
		return "halted"
	}
	return "unknown"
}

// ended reports whether nothing will be done for the partition any more.
func (s state) ended() bool {
	switch s {
	case stateAssigned, stateRestoring, stateRunning, stateDraining:
		return false
	case stateGone, stateHalted:
		return true
	}
	return true
}

// commits reports whether the partition's effects may go into a cycle.
func (s state) commits() bool {
	switch s {
	case stateRunning, stateDraining:
		return true
	case stateAssigned, stateRestoring, stateGone, stateHalted:
		return false
	}
	return false
}
