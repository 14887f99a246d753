package statestore

// NoOffset is the Offset of an effect that completes no input record.
const NoOffset int64 = -1

// Op is what a mutation does.
type Op uint8

const (
	// OpSet stores Value under Key.
	OpSet Op = iota
	// OpDelete removes Key.
	OpDelete
	// OpAppend adds Value to the log Key. What one cycle appends to a log becomes one record, or several in order where one
	// would pass the record limit.
	OpAppend
	// OpDrop removes the log Key with all its records. Nothing may be appended to it afterwards.
	OpDrop
	// OpNote is made by Note.Done.
	OpNote
)

// Mutation changes one key of a partition, or one log. Neither Key nor Value may be changed after it was added.
type Mutation struct {
	Op    Op
	Key   string
	Value []byte
	// Late is what OpAppend adds in the place of Value if it is set.
	Late Late
}

// Late is a value that is made when it is needed first, which is never if its log is dropped before a cycle takes it. It is safe for
// concurrent use, and must make the same however late that is.
type Late interface {
	// Size is the most bytes it has, known beforehand.
	Size() int
	// Bytes gives it, the same memory each time.
	Bytes() []byte
}

// value is what the mutation stores.
func (m *Mutation) value() []byte {
	if m.Late != nil {
		return m.Late.Bytes()
	}
	return m.Value
}

// size is what the mutation's key and value count against limits.
func (m *Mutation) size() int {
	n := len(m.Key) + len(m.Value)
	if m.Late != nil {
		n += m.Late.Size()
	}
	return n
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Output is a record for a topic other than the changelog. The store keeps it until its cycle commits and never reads it.
type Output struct {
	Topic   string
	Key     []byte
	Value   []byte
	Headers []Header
	// Partition is the partition to write to, or -1 to let the key decide.
	Partition int32
}

// size is what the output counts against the limits of a cycle and the buffer.
func (o *Output) size() int {
	n := len(o.Key) + len(o.Value) + 64
	for _, h := range o.Headers {
		n += len(h.Key) + len(h.Value) + 8
	}
	return n
}

// Effect is what one or more facts add to the next commit: it is committed whole or not at all.
type Effect struct {
	Mutations []Mutation
	Outputs   []Output
	// Offset is the input record that the effect completes, or NoOffset.
	Offset int64
	// Urgent says that somebody waits for it, so the next cycle starts as soon as the last one is done.
	Urgent bool
	// Owner is whose effect it is, so that Drop can find all there are of one; nil is nobody's. Owners are compared with ==.
	Owner any
	// Settled, when not nil, is called exactly once: with nil after the effect was committed, or with an error
	// that wraps ErrGone or ErrDropped when the partition let go of it first. It must return at once and must not call the
	// partition.
	Settled func(error)

	// bytes is its size, once it is queued.
	bytes int
}

func (e *Effect) size() int {
	n := 64
	for i := range e.Mutations {
		n += e.Mutations[i].size() + 32
	}
	for i := range e.Outputs {
		n += e.Outputs[i].size()
	}
	return n
}

// records is the most changelog and output records that the effect can cause.
func (e *Effect) records() int { return len(e.Mutations) + len(e.Outputs) }
