package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batchLimits bound the batches of topics whose broker has refused one. A broker refuses a batch as a whole, and the client then
// fails whatever else it has for that partition; so which record is to blame is known only of one that went alone. The limit
// of a topic is halved until that is so, or until nothing is refused: a batch of records none of which is too large by itself,
// such as after an operator has lowered max.message.bytes, needs no more. It is doubled again after a while.
//
// It belongs to the goroutine that calls Ring.Commit.
type batchLimits struct {
	topics map[string]*batchLimit
	// most is the largest batch of a topic without a limit here.
	most func(topic string) int
	now  func() time.Time
}

type batchLimit struct {
	bytes int
	at    time.Time
}

// relaxAfter is how long a topic keeps its limit.
const relaxAfter = time.Minute

type topicPartition struct {
	topic     string
	partition int32
}

// rounds splits the records so that no partition of a limited topic has more than one batch in a round. Without limits there is
// one round.
func (l *batchLimits) rounds(records []*kgo.Record) [][]*kgo.Record {
	l.relax()
	if len(l.topics) == 0 {
		return [][]*kgo.Record{records}
	}
	type fill struct{ round, bytes int }
	fills := make(map[topicPartition]*fill)
	rounds := [][]*kgo.Record{nil}
	for _, r := range records {
		limit := l.topics[r.Topic]
		if limit == nil {
			rounds[0] = append(rounds[0], r)
			continue
		}
		k := topicPartition{r.Topic, r.Partition}
		f := fills[k]
		if f == nil {
			f = &fill{}
			fills[k] = f
		}
		if f.bytes > 0 && f.bytes+size(r) > limit.bytes {
			f.round, f.bytes = f.round+1, 0
		}
		f.bytes += size(r)
		for len(rounds) <= f.round {
			rounds = append(rounds, nil)
		}
		rounds[f.round] = append(rounds[f.round], r)
	}
	if len(rounds[0]) == 0 {
		return rounds[1:]
	}
	return rounds
}

// blame returns, of the records that were refused, those that are certainly to blame. If there are none it lowers the limits of
// their topics, so that the next attempt knows more.
func (l *batchLimits) blame(refused []*kgo.Record) []*kgo.Record {
	count, bytes := make(map[topicPartition]int), make(map[topicPartition]int)
	for _, r := range refused {
		k := topicPartition{r.Topic, r.Partition}
		count[k]++
		bytes[k] += size(r)
	}
	var guilty []*kgo.Record
	for _, r := range refused {
		if count[topicPartition{r.Topic, r.Partition}] == 1 {
			guilty = append(guilty, r)
		}
	}
	if len(guilty) == 0 {
		for k, n := range bytes {
			l.lower(k.topic, n)
		}
	}
	return guilty
}

// lower makes a batch of n bytes of the topic at least two.
func (l *batchLimits) lower(topic string, n int) {
	half := max(1, min(n, l.most(topic))/2)
	if l.topics == nil {
		l.topics = make(map[string]*batchLimit)
	}
	if t := l.topics[topic]; t != nil {
		half = min(half, t.bytes)
	}
	l.topics[topic] = &batchLimit{bytes: half, at: l.now()}
}

func (l *batchLimits) relax() {
	for topic, t := range l.topics {
		if l.now().Sub(t.at) < relaxAfter {
			continue
		}
		t.bytes, t.at = 2*t.bytes, l.now()
		if t.bytes >= l.most(topic) {
			delete(l.topics, topic)
		}
	}
}

// smallest is the smallest limit; 0 when there is none.
func (l *batchLimits) smallest() int {
	n := 0
	for _, t := range l.topics {
		if n == 0 || t.bytes < n {
			n = t.bytes
		}
	}
	return n
}

// size is about what a record takes in a batch.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + recordOverhead
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 4
	}
	return n
}

// recordOverhead is what lengths, offset and timestamp of a record take.
const recordOverhead = 20
