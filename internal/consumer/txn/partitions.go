package txn

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions are the partitions that the records of a cycle go to. It is reused from cycle to cycle, and reads each
// record once: a large cycle has thousands.
type partitions struct {
	topics []topicPartitions
}

type topicPartitions struct {
	topic string
	// list holds each partition once, in order of appearance; seen is indexed by partition.
	list []int32
	seen []bool
}

func (p *partitions) of(records []*kgo.Record) {
	for i := range p.topics {
		t := &p.topics[i]
		for _, partition := range t.list {
			t.seen[partition] = false
		}
		t.list = t.list[:0]
	}
	for _, r := range records {
		p.topic(r.Topic).add(r.Partition)
	}
}

func (p *partitions) topic(name string) *topicPartitions {
	for i := range p.topics {
		if p.topics[i].topic == name {
			return &p.topics[i]
		}
	}
	p.topics = append(p.topics, topicPartitions{topic: name})
	return &p.topics[len(p.topics)-1]
}

func (t *topicPartitions) add(partition int32) {
	if int(partition) >= len(t.seen) {
		t.seen = append(t.seen, make([]bool, int(partition)+1-len(t.seen))...)
	}
	if !t.seen[partition] {
		t.seen[partition] = true
		t.list = append(t.list, partition)
	}
}

// manyLeaders reports whether the partitions are led by more than one broker, or by nobody knows whom.
func (p *partitions) manyLeaders(leader func(topic string, partition int32) int32) bool {
	first := int32(-1)
	for _, t := range p.topics {
		for _, partition := range t.list {
			l := leader(t.topic, partition)
			if l < 0 || first >= 0 && l != first {
				return true
			}
			first = l
		}
	}
	return false
}

// each calls visit for every topic that has partitions.
func (p *partitions) each(visit func(topic string, list []int32)) {
	for _, t := range p.topics {
		if len(t.list) > 0 {
			visit(t.topic, slices.Clone(t.list))
		}
	}
}
