package dedupe

import "time"

// transcript has the frames of a turn that become its session's history, one after the other, as the history has them. The journal's
// records share its memory: a frame does not change once it was added, and what comes behind it is nobody else's yet.
type transcript struct {
	// b begins with room for a stamp.
	b []byte
	// ends are where the frames end in b; few is room for those of most turns.
	ends []int
	few  [8]int
}

// mostTranscript is the most memory that a turn is given ahead for its transcript.
const mostTranscript = 16 << 10

// room is what the next frame is appended to, with room for n bytes. expected is how long the transcript is likely to become.
func (t *transcript) room(n, expected int) []byte {
	if t.b == nil {
		t.ends = t.few[:0]
		t.b = make([]byte, stampSize, stampSize+max(n, min(expected, mostTranscript), 1<<10))
	}
	if cap(t.b)-len(t.b) < n {
		grown := make([]byte, len(t.b), max(cap(t.b)+cap(t.b)/2, len(t.b)+n))
		copy(grown, t.b)
		t.b = grown
	}
	return t.b
}

// add takes what room gave with one more frame, and returns the frame.
func (t *transcript) add(b []byte) []byte {
	start := len(t.b)
	t.b, t.ends = b, append(t.ends, len(b))
	return b[start:len(b):len(b)]
}

// cut takes back the frames after the first n, which nobody may have seen.
func (t *transcript) cut(n int) {
	if n == len(t.ends) {
		return
	}
	t.ends = t.ends[:n]
	t.b = t.b[:stampSize]
	if n > 0 {
		t.b = t.b[:t.ends[n-1]]
	}
}

// size is how many bytes the frames have.
func (t *transcript) size() int { return max(0, len(t.b)-stampSize) }

// parts gives the values of the history's parts in order: one, or as many as keep a limit where they are of whole frames. The transcript
// is not written to afterwards.
func (t *transcript) parts(at time.Time, limit int, give func(value []byte)) {
	if len(t.b) <= limit || len(t.ends) == 1 {
		whole := t.room(0, 0)
		appendStamp(whole[:0], at)
		give(whole[:len(whole):len(whole)])
		return
	}
	from := stampSize
	for i, end := range t.ends {
		if i+1 < len(t.ends) && stampSize+t.ends[i+1]-from <= limit {
			continue
		}
		give(append(stamped(at, end-from), t.b[from:end]...))
		from = end
	}
}
