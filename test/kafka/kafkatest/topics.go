package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createTopic makes a topic with the cluster's default replication, waits until every broker knows the
// leaders of all partitions, and returns its id.
func createTopic(
	ctx context.Context, cl *kgo.Client, topic string, partitions int32, configs map[string]*string,
) (kadm.TopicID, error) {
	created, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, -1, configs, topic)
	if err != nil {
		return kadm.TopicID{}, fmt.Errorf("create topic %s: %w", topic, err)
	}
	for {
		known, err := knownEverywhere(ctx, cl, topic, partitions)
		if known || err != nil {
			return created.ID, err
		}
		select {
		case <-ctx.Done():
			return kadm.TopicID{}, fmt.Errorf("wait for the leaders of topic %s: %w", topic, context.Cause(ctx))
		case <-time.After(retryInterval):
		}
	}
}

// knownEverywhere asks every broker by itself: one that does not know a new topic yet refuses its id, as a coordinator too.
func knownEverywhere(ctx context.Context, cl *kgo.Client, topic string, partitions int32) (bool, error) {
	brokers, err := cl.Request(ctx, metadataRequest(""))
	if err != nil {
		return false, fmt.Errorf("look for topic %s: %w", topic, err)
	}
	all, ok := brokers.(*kmsg.MetadataResponse)
	if !ok {
		return false, fmt.Errorf("look for topic %s: %T is no metadata", topic, brokers)
	}
	for _, b := range all.Brokers {
		resp, err := metadataRequest(topic).RequestWith(ctx, cl.Broker(int(b.NodeID)))
		if err != nil {
			return false, fmt.Errorf("ask broker %d for topic %s: %w", b.NodeID, topic, err)
		}
		if len(resp.Topics) != 1 || !hasLeaders(resp.Topics[0], partitions) {
			return false, nil
		}
	}
	return true, nil
}

// metadataRequest asks for one topic, or for none.
func metadataRequest(topic string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	return req
}

func hasLeaders(topic kmsg.MetadataResponseTopic, partitions int32) bool {
	if topic.ErrorCode != 0 || len(topic.Partitions) < int(partitions) {
		return false
	}
	for _, p := range topic.Partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			return false
		}
	}
	return true
}
