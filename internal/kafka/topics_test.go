package kafka

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// topicCluster gives the topic suite a cluster; names keeps its users apart.
type topicCluster struct {
	addrs []string
	names func(testing.TB) string
}

// topicSuite holds on every broker.
func topicSuite(t *testing.T, cluster func(tb testing.TB, brokers int) topicCluster) {
	t.Helper()
	t.Run("turns missing", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		_, err := x.ensure()
		want := "kafka-topics.sh --bootstrap-server " + strings.Join(x.addrs, ",") +
			" --create --topic " + x.topics.Turns + " --partitions 12"
		if !strings.Contains(errorText(err), want) {
			t.Errorf("error = %v\nwant the command\n%s", err, want)
		}
		if got := x.existing(); len(got) > 0 {
			t.Errorf("created %v", got)
		}
	})
	t.Run("creates the others as wanted, and finds them again", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		x.create(x.topics.Turns, 5, nil)
		first, err := x.ensure()
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range x.topics.roles() {
			info := *role.info(&first)
			if info.Name != role.name || info.Partitions != 5 || info.ID == [16]byte{} || info.Replicas != 1 ||
				info.MaxMessageBytes != 1048588 || info.MinInSync != 1 {
				t.Errorf("%s is %+v", role.what, info)
			}
		}
		if got := first.Changelog; got.CleanupPolicy != "compact" || got.DeleteRetention != 7*24*time.Hour {
			t.Errorf("the changelog is %+v", got)
		}
		if got := first.TurnStatus; got.CleanupPolicy != "delete" || got.Retention != time.Hour || got.Segment != 15*time.Minute {
			t.Errorf("the status is %+v", got)
		}
		if got := first.Turns; got.Retention != 7*24*time.Hour || got.Segment != 7*24*time.Hour {
			t.Errorf("the turns are %+v", got)
		}
		if !strings.Contains(x.log.String(), "topic has one replica") {
			t.Errorf("no warning of the single replica:\n%s", x.log.String())
		}
		again, err := x.ensure()
		if err != nil {
			t.Fatal(err)
		}
		if again != first {
			t.Errorf("the second start sees %+v, the first %+v", again, first)
		}
	})
	t.Run("several workers start at once", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		x.create(x.topics.Turns, 2, nil)
		const workers = 4
		errs := make(chan error, workers)
		for range workers {
			go func() {
				_, err := x.ensure()
				errs <- err
			}()
		}
		for range workers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("creation not allowed", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		x.create(x.topics.Turns, 3, nil)
		x.topics.Create = false
		_, err := x.ensure()
		for _, name := range []string{x.topics.ToolEvents, x.topics.TurnEvents, x.topics.TurnStatus, x.topics.DLQ} {
			if !strings.Contains(errorText(err), "--create --topic "+name+" --partitions 3") {
				t.Errorf("no command for %s in\n%v", name, err)
			}
		}
		if !strings.Contains(errorText(err), "--topic "+x.topics.Changelog+" --partitions 3 --config cleanup.policy=compact") {
			t.Errorf("no command for the changelog in\n%v", err)
		}
	})
	t.Run("every fault of the topics at once", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		x.create(x.topics.Turns, 3, map[string]string{"cleanup.policy": "compact"})
		x.create(x.topics.TurnEvents, 3, map[string]string{"cleanup.policy": "compact,delete"})
		x.create(x.topics.Changelog, 4, map[string]string{"cleanup.policy": "compact,delete", "delete.retention.ms": "60000"})
		_, err := x.ensure()
		for _, want := range []string{
			x.topics.Turns + ` (turns) has cleanup.policy "compact"`,
			x.topics.TurnEvents + ` (turn events) has cleanup.policy "compact,delete"`,
			x.topics.Changelog + ` (state) has cleanup.policy "compact,delete", but it must be exactly compact`,
			x.topics.Changelog + " has 4 partitions, but " + x.topics.Turns + " has 3",
			x.topics.Changelog + " has delete.retention.ms of 1m0s, but at least 24h0m0s",
		} {
			if !strings.Contains(errorText(err), want) {
				t.Errorf("no %q in\n%v", want, err)
			}
		}
	})
	t.Run("endless retention", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 1))
		x.create(x.topics.Turns, 1, map[string]string{"retention.ms": "-1", "segment.ms": "9223372036854775807"})
		set, err := x.ensure()
		if err != nil {
			t.Fatal(err)
		}
		if set.Turns.Retention != Forever || set.Turns.Segment != Forever {
			t.Errorf("turns are %+v, want retention and segment for ever", set.Turns)
		}
	})
	t.Run("one replica on three brokers", func(t *testing.T) {
		t.Parallel()
		x := newTopicTest(t, cluster(t, 3))
		const one = 1
		if _, err := x.adm.CreateTopic(t.Context(), 2, one, nil, x.topics.Turns); err != nil {
			t.Fatal(err)
		}
		x.await(x.topics.Turns)
		_, err := x.ensure()
		if got := errorText(err); !strings.Contains(got, "LATHE_ALLOW_SINGLE_REPLICA") || !strings.Contains(got, x.topics.Turns) {
			t.Errorf("error = %v", err)
		}
		if n := strings.Count(errorText(err), "one replica"); n != 1 {
			t.Errorf("%d topics are refused, want only the turns:\n%v", n, err)
		}
		x.topics.AllowSingleReplica = true
		set, err := x.ensure()
		if err != nil {
			t.Fatalf("with leave: %v", err)
		}
		if set.Turns.Replicas != 1 || set.Changelog.Replicas != 3 {
			t.Errorf("replicas are %d and %d, want 1 and 3", set.Turns.Replicas, set.Changelog.Replicas)
		}
	})
	t.Run("capabilities", func(t *testing.T) {
		t.Parallel()
		for _, brokers := range []int{1, 3} {
			x := newTopicTest(t, cluster(t, brokers))
			caps, err := CheckBrokers(t.Context(), testClient(x, testConfig(x, x.addrs...)), 15*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if caps.Brokers != brokers || caps.TransactionVersion != 2 || !caps.ConsumerProtocol ||
				caps.MaxTransactionTimeout != 15*time.Minute {
				t.Errorf("with %d brokers: %+v", brokers, caps)
			}
			_, err = CheckBrokers(t.Context(), testClient(x, testConfig(x, x.addrs...)), 16*time.Minute)
			if !strings.Contains(errorText(err), "LATHE_TRANSACTION_TIMEOUT is 16m0s") {
				t.Errorf("error = %v", err)
			}
		}
	})
}

// topicTest is one test of the suite.
type topicTest struct {
	testing.TB

	addrs  []string
	topics Topics
	adm    *kadm.Client
	log    *syncBuffer
}

func newTopicTest(tb testing.TB, c topicCluster) *topicTest {
	tb.Helper()
	prefix := c.names(tb)
	return &topicTest{
		TB: tb, addrs: c.addrs, log: &syncBuffer{},
		adm: kadm.NewClient(testClient(tb, testConfig(tb, c.addrs...))),
		topics: Topics{
			Turns: prefix + ".turns", ToolEvents: prefix + ".tool-events", TurnEvents: prefix + ".turn-events",
			TurnStatus: prefix + ".turn-status", Changelog: prefix + ".changelog", DLQ: prefix + ".turns.dlq", Create: true,
		},
	}
}

func (x *topicTest) ensure() (TopicSet, error) {
	return EnsureTopics(x.Context(), testClient(x, testConfig(x, x.addrs...)), x.topics, slog.New(slog.NewTextHandler(x.log, nil)))
}

func (x *topicTest) create(topic string, partitions int32, configs map[string]string) {
	x.Helper()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	if _, err := x.adm.CreateTopic(x.Context(), partitions, -1, values, topic); err != nil {
		x.Fatal(err)
	}
	x.await(topic)
}

// await returns when the topic is seen; a real cluster needs a moment.
func (x *topicTest) await(topic string) {
	x.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		details, err := x.adm.ListTopics(kadm.WithAuthorizedOps(x.Context()), topic) // not from the client's cache
		if err != nil {
			x.Fatal(err)
		}
		if !slices.ContainsFunc(details[topic].Partitions.Sorted(), func(p kadm.PartitionDetail) bool { return p.Leader < 0 }) &&
			details.Has(topic) {
			return
		}
		<-tick.C
	}
}

func (x *topicTest) existing() []string {
	x.Helper()
	topics, err := x.adm.ListTopics(kadm.WithAuthorizedOps(x.Context()))
	if err != nil {
		x.Fatal(err)
	}
	var names []string
	for _, role := range x.topics.roles() {
		if topics.Has(role.name) {
			names = append(names, role.name)
		}
	}
	return names
}

func TestTopics_OnKfake(t *testing.T) {
	t.Parallel()
	topicSuite(t, func(tb testing.TB, brokers int) topicCluster {
		tb.Helper()
		return topicCluster{
			addrs: newFake(tb, kfake.NumBrokers(brokers)).ListenAddrs(),
			names: func(testing.TB) string { return "lathe" },
		}
	})
}

func TestEnsureTopics_CreatesNoneWhenOneWouldHaveOneReplica(t *testing.T) {
	t.Parallel()
	fake := newFake(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "lathe.turns"))
	x := newTopicTest(t, topicCluster{addrs: fake.ListenAddrs(), names: func(testing.TB) string { return "lathe" }})
	// kfake has no default of one replica: the dry run answers as a cluster with that default does.
	fake.ControlKey(kmsg.CreateTopics.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		create, ok := req.(*kmsg.CreateTopicsRequest)
		if !ok || !create.ValidateOnly {
			return nil, nil, false //nolint:nilnil // kfake asks for it: not handled here
		}
		resp, _ := create.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range create.Topics {
			answer := kmsg.NewCreateTopicsResponseTopic()
			answer.Topic, answer.NumPartitions, answer.ReplicationFactor = topic.Topic, topic.NumPartitions, 1
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	_, err := x.ensure()
	if n := strings.Count(errorText(err), "would be created with one replica"); n != 5 {
		t.Errorf("%d topics are refused, want 5:\n%v", n, err)
	}
	if got := x.existing(); len(got) != 1 {
		t.Errorf("topics are %v, want only the turns", got)
	}
}

func TestEnsureTopics_SaysWhichTopicMayNotBeRead(t *testing.T) {
	t.Parallel()
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "lathe.turns"))
	fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "lathe.tool-events", Err: kerr.TopicAuthorizationFailed,
	})
	x := newTopicTest(t, topicCluster{addrs: fake.ListenAddrs(), names: func(testing.TB) string { return "lathe" }})
	_, err := x.ensure()
	if got := errorText(err); !strings.Contains(got, "lathe.tool-events") || !strings.Contains(got, "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("error = %v", err)
	}
}

func TestCheckBrokers_KnowsOldClusters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		versions *kversion.Versions
		want     Capabilities
		err      string
	}{
		{name: "2.7", versions: kversion.V2_7_0(), err: "Apache Kafka 2.8 or later is needed"},
		{name: "2.4, without the fence", versions: kversion.V2_4_0(), err: "TxnOffsetCommit of version 3"},
		{name: "2.8", versions: kversion.V2_8_0(), want: Capabilities{Brokers: 1, MaxTransactionTimeout: 15 * time.Minute}},
		{name: "3.9", versions: kversion.V3_9_0(), want: Capabilities{Brokers: 1, MaxTransactionTimeout: 15 * time.Minute}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := newFake(t, kfake.NumBrokers(1), kfake.MaxVersions(tc.versions))
			got, err := CheckBrokers(t.Context(), testClient(t, testConfig(t, fake.ListenAddrs()...)), time.Second)
			if tc.err != "" {
				if !strings.Contains(errorText(err), tc.err) {
					t.Errorf("error = %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got.ConsumerProtocol = false // kfake as 3.9 has it in part
			if got != tc.want {
				t.Errorf("capabilities %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestCheckBrokers_EndsWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := CheckBrokers(ctx, testClient(t, testConfig(t, "127.0.0.1:1")), time.Second); err == nil {
		t.Error("capabilities of a broker that is not there")
	}
}

func TestEnsureTopics_TrustsTheBrokerThatKnowsATopicOverTheOneThatLags(t *testing.T) {
	t.Parallel()
	fake := newFake(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "lathe.turns"))
	x := newTopicTest(t, topicCluster{addrs: fake.ListenAddrs(), names: func(testing.TB) string { return "lathe" }})
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.DescribeConfigs} {
		// The first answers come from a broker that has not heard of the topic.
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: "lathe.turns", Err: kerr.UnknownTopicOrPartition, Count: 1})
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Resource: "lathe.turns", Err: kerr.UnknownTopicOrPartition, Count: 1})
	}
	if set, err := x.ensure(); err != nil || set.Turns.Partitions != 2 {
		t.Errorf("turns are %+v, %v", set.Turns, err)
	}
}
