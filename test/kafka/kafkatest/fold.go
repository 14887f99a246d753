package kafkatest

import "github.com/twmb/franz-go/pkg/kgo"

// Fold is what the records of a compacted topic come to: by partition, the last value of each key that was not deleted. Every
// partition below partitions has an entry.
func Fold(records []*kgo.Record, partitions int32) map[int32]map[string]string {
	out := make(map[int32]map[string]string)
	for p := range partitions {
		out[p] = make(map[string]string)
	}
	for _, r := range records {
		if r.Value == nil {
			delete(out[r.Partition], string(r.Key))
		} else {
			out[r.Partition][string(r.Key)] = string(r.Value)
		}
	}
	return out
}
