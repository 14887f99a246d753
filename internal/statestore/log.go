package statestore

import "fmt"

// logState is what a partition knows of one log while it is in use: how many records of it Pebble holds, and the chunks that
// are not committed yet.
type logState struct {
	settled int
	pending []chunk
	dropped bool
	// dropper is the effect that dropped the log, when dropped.
	dropper uint64
}

// droppedBefore reports whether the log is dropped by an effect before end.
func (l *logState) droppedBefore(end uint64) bool { return l.dropped && l.dropper < end }

// chunksBefore are the pending chunks of effects before end.
func (l *logState) chunksBefore(end uint64) [][]byte {
	var out [][]byte
	for _, c := range l.pending {
		if c.effect < end {
			out = append(out, c.mutation.value())
		}
	}
	return out
}

// chunk is what one mutation appends.
type chunk struct {
	effect   uint64
	mutation *Mutation
}

// Log returns what was appended to a log, in order, committed or not; nil when there is no such log. Each element is one
// record's body or one chunk. A log has one user at a time.
func (p *Partition) Log(key string) ([][]byte, error) {
	if err := p.ensureLog(key); err != nil {
		return nil, err
	}
	settled, pending, err := p.logView(key)
	if err != nil || settled+len(pending) == 0 {
		return nil, err
	}
	out := make([][]byte, 0, settled+len(pending))
	for n := range settled {
		v, found, err := p.store.get(p.id, logRecordKey(key, n))
		if err != nil {
			return nil, fmt.Errorf("read record %d of log %s: %w", n, key, err)
		}
		if !found {
			return nil, fmt.Errorf("read record %d of log %s: it is missing", n, key)
		}
		body, err := Body(v)
		if err != nil {
			return nil, fmt.Errorf("read record %d of log %s: %w", n, key, err)
		}
		out = append(out, body)
	}
	return append(out, pending...), nil
}

func (p *Partition) logView(key string) (settled int, pending [][]byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return 0, nil, fmt.Errorf("partition %d: %w", p.id, ErrGone)
	}
	l := p.mu.logs[key]
	if l == nil || l.dropped {
		return 0, nil, nil
	}
	for _, c := range l.pending {
		pending = append(pending, c.mutation.value())
	}
	return l.settled, pending, nil
}

// NewLog says that there is no such log, so that it is not looked for when something is appended to it.
func (p *Partition) NewLog(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.mu.logs[key]; !known && !p.mu.gone {
		p.mu.logs[key] = &logState{}
	}
}

// Forget lets go of what is kept about a log that was looked up and not found. It may be called for any log.
func (p *Partition) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.mu.logs[key]; ok && len(l.pending) == 0 && !l.dropped {
		delete(p.mu.logs, key)
	}
}

// ensureLog counts the records of a log in Pebble the first time it is used, without holding the lock.
func (p *Partition) ensureLog(key string) error {
	p.mu.Lock()
	_, known := p.mu.logs[key]
	p.mu.Unlock()
	if known {
		return nil
	}
	n := 0
	for {
		found, err := p.store.has(p.id, logRecordKey(key, n))
		if err != nil {
			return err
		}
		if !found {
			break
		}
		n++
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.mu.logs[key]; !known && !p.mu.gone {
		p.mu.logs[key] = &logState{settled: n}
	}
	return nil
}

// joinChunks makes records of chunks: one, or several where one would pass the limit. A chunk is never split; the caller
// bounds what it appends at once.
func joinChunks(chunks [][]byte, limit int) [][]byte {
	var out [][]byte
	for len(chunks) > 0 {
		n, size := 1, 1+len(chunks[0])
		for n < len(chunks) && size+len(chunks[n]) <= limit {
			size += len(chunks[n])
			n++
		}
		record := append(make([]byte, 0, size), Format)
		for _, c := range chunks[:n] {
			record = append(record, c...)
		}
		out, chunks = append(out, record), chunks[n:]
	}
	return out
}
