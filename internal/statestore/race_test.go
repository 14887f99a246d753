package statestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// Lanes add, read and scan while the committer commits: each lane sees its own newest writes at every moment, never an older
// one and never a gap.
func TestPartition_ShowsEachLaneItsNewestWritesWhileCyclesCommit(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	wake := make(chan struct{}, 1)
	p := s.Attach(1, func(bool) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	lanes, stop := sync.WaitGroup{}, make(chan struct{})
	for lane := range 4 {
		lanes.Go(func() {
			for n := range 300 {
				if err := laneStep(p, lane, uint64(n)); err != nil {
					t.Errorf("lane %d at %d: %v", lane, n, err)
					return
				}
			}
		})
	}
	var committer sync.WaitGroup
	committer.Go(func() { commitUntil(t, s, p, wake, stop) })
	lanes.Wait()
	close(stop)
	committer.Wait()
	if n, size := p.Pending(); n != 0 || size != 0 {
		t.Errorf("at the end %d effects of %d bytes are pending", n, size)
	}
	p.Detach()
}

func commitUntil(t *testing.T, s *Store, p *Partition, wake, stop chan struct{}) {
	t.Helper()
	for cid := int64(1); ; cid++ {
		stopped := false
		select {
		case <-wake:
		case <-stop:
			stopped = true
		}
		b, err := p.Take(10_000, 37)
		if err != nil {
			t.Errorf("Take: %v", err)
			return
		}
		if b != nil && cid%3 != 0 { // Every third cycle is aborted.
			b.Waiting().Tell()
			if err := s.Commit([]Settlement{{Batch: b, Position: position(cid)}}); err != nil {
				t.Errorf("Commit: %v", err)
				return
			}
		}
		if b == nil && stopped {
			return
		}
	}
}

// laneStep writes n to the lane's key, keeps the last three of its numbers, and appends to a log of which each tenth begins a
// new one; then it reads everything back.
func laneStep(p *Partition, lane int, n uint64) error {
	key := fmt.Sprintf("lane%d", lane)
	log := fmt.Sprintf("log%d-%d", lane, n/10)
	value := binary.BigEndian.AppendUint64([]byte{Format}, n)
	e := effect(
		Mutation{Op: OpSet, Key: key, Value: value},
		Mutation{Op: OpSet, Key: fmt.Sprintf("recent%d/%08x", lane, n), Value: value},
		app(log, string([]byte{byte(n % 10)})),
	)
	if n >= 3 {
		e.Mutations = append(e.Mutations, del(fmt.Sprintf("recent%d/%08x", lane, n-3)))
	}
	if err := p.Add(e); err != nil {
		return err
	}
	got, found, err := p.Get(key)
	if err != nil || !found || !bytes.Equal(got, value) {
		return fmt.Errorf("get gives %x, %t, %w", got, found, err)
	}
	parts, err := p.Log(log)
	if all := bytes.Join(parts, nil); err != nil || len(all) != int(n%10)+1 || all[len(all)-1] != byte(n%10) {
		return fmt.Errorf("log gives %v, %w", parts, err)
	}
	if n%10 == 9 {
		if err := p.Add(effect(drop(log))); err != nil {
			return err
		}
	}
	want := max(0, int64(n)-2)
	err = p.Scan(fmt.Sprintf("recent%d/", lane), func(_ string, v []byte) error {
		if at := int64(binary.BigEndian.Uint64(v[1:])); at != want {
			return fmt.Errorf("scan sees %d, not %d", at, want)
		}
		want++
		return nil
	})
	if err == nil && want != int64(n)+1 {
		err = fmt.Errorf("scan ended before %d", want)
	}
	return err
}

// Detaching while lanes add and a cycle commits settles every effect that was taken in, exactly once.
func TestDetach_SettlesEveryEffectOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	for round := range 50 {
		p := attach(s, int32(round))
		var mu sync.Mutex
		told := make(map[int]int)
		added := make(map[int]bool)
		var wg sync.WaitGroup
		for lane := range 3 {
			wg.Go(func() {
				for n := range 20 {
					id := lane*100 + n
					err := p.Add(&Effect{Mutations: []Mutation{set(strconv.Itoa(id), "v")}, Offset: NoOffset, Settled: func(error) {
						mu.Lock()
						told[id]++
						mu.Unlock()
					}})
					mu.Lock()
					added[id] = err == nil
					mu.Unlock()
				}
			})
		}
		wg.Go(func() {
			for range 5 {
				if b, err := p.Take(1000, 10); err != nil {
					t.Errorf("Take: %v", err)
				} else if b != nil {
					b.Waiting().Tell()
					if err := s.Commit([]Settlement{{Batch: b, Position: position(1)}}); err != nil {
						t.Errorf("Commit: %v", err)
					}
				}
			}
		})
		wg.Go(p.Detach)
		wg.Wait()
		for id, ok := range added {
			if want := map[bool]int{true: 1}[ok]; told[id] != want {
				t.Fatalf("round %d: effect %d (added %t) was settled %d times", round, id, ok, told[id])
			}
		}
	}
}
