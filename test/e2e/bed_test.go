package e2e_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/proc"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// cluster is where the brokers are, and whether they are Apache Kafka.
type cluster struct {
	addrs []string
	real  bool
}

// bed is one deployment: topics, a group, a manifest and a world of its own on a shared cluster.
type bed struct {
	*testing.T

	ctx      context.Context
	cluster  *cluster
	dir      string
	app      string
	settings map[string]string
	cl       *kgo.Client
	adm      *kadm.Client
	sent     []sentTurn
	dead     []deadLetter
}

// sentTurn is a turn that was sent, in the order of sending, and how it may end.
type sentTurn struct {
	id, session string
	// may are the statuses it may end with; none means completed.
	may []string
}

const turnPartitions = 4

// newBed makes a deployment on a cluster. Its settings may be changed before a worker starts.
func newBed(t *testing.T, c *cluster) *bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	t.Cleanup(cancel)
	name := strings.ReplaceAll(kafkatest.Name(t), "_", "-")
	name = name[max(0, len(name)-60):]
	name = strings.TrimLeft(name, "-.")
	b := &bed{T: t, ctx: ctx, cluster: c, dir: t.TempDir(), app: name}
	b.settings = map[string]string{
		"LATHE_BROKERS": strings.Join(c.addrs, ","), "LATHE_APP": b.app, "LATHE_TOPIC_PREFIX": b.app + ".",
		"LATHE_MANIFEST": filepath.Join(b.dir, "lathe.yaml"), "LATHE_ADMIN_ADDR": "127.0.0.1:0",
		"LATHE_SESSION_TIMEOUT": "6s", "LATHE_DRAIN_BUDGET": "20s", "LATHE_LOG_FORMAT": "json",
		envChild: "1", envDir: b.dir,
	}
	b.write("lathe.yaml", manifest)
	b.write("script.yaml", script)
	b.cl = b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	b.adm = kadm.NewClient(b.cl)
	return b
}

// client makes a client of the cluster that is closed with the test.
func (b *bed) client(opts ...kgo.Opt) *kgo.Client {
	b.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.cluster.addrs...), kgo.DisableClientMetrics(), kgo.ProducerBatchMaxBytes(16 << 20),
		kgo.MetadataMinAge(10 * time.Millisecond), // A topic that was just made may have no leader at the first look.
	}, opts...)...)
	b.must(err)
	b.Cleanup(cl.Close)
	return cl
}

// createTurns makes the topic of turns, with configs as name, value.
func (b *bed) createTurns(configs ...string) {
	b.Helper()
	values := make(map[string]*string)
	for i := 0; i < len(configs); i += 2 {
		values[configs[i]] = &configs[i+1]
	}
	_, err := b.adm.CreateTopic(b.ctx, turnPartitions, -1, values, b.topic("turns"))
	b.must(err)
	b.eventually("the topic of turns has leaders", func() bool {
		d, err := b.adm.ListTopics(b.ctx, b.topic("turns"))
		return err == nil && d.Error() == nil && len(d[b.topic("turns")].Partitions) == turnPartitions
	})
}

func (b *bed) topic(name string) string { return b.app + "." + name }

func (b *bed) changelog() string { return b.topic(b.app + ".changelog") }

func (b *bed) write(name, content string) {
	b.Helper()
	b.must(os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600))
}

// release lets the held calls of a turn return.
func (b *bed) release(turn string) { b.write("release-"+turn, "") }

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// environ is the environment of a child: this process's without its settings, and the bed's own with changes.
func (b *bed) environ(changes map[string]string) []string {
	set := maps.Clone(b.settings)
	maps.Copy(set, changes)
	return proc.Environ(set)
}

// turn is a request of a user, in a session; the script answers by the prefix of the id.
func turn(id, session string, may ...string) (*schemas.TurnEvent, sentTurn) {
	return &schemas.TurnEvent{
		TurnID: id, SessionID: session, Messages: []schemas.Message{{Role: "user", Text: "this is " + id}},
	}, sentTurn{id, session, may}
}

// send sends a turn and expects it to end with one of the statuses; none means completed.
func (b *bed) send(id, session string, may ...string) {
	b.Helper()
	ev, expected := turn(id, session, may...)
	b.sendEvent(ev)
	b.sent = append(b.sent, expected)
}

// sendEvent sends an event that starts no turn of its own, or again.
func (b *bed) sendEvent(ev *schemas.TurnEvent) {
	b.Helper()
	value, err := json.Marshal(ev)
	b.must(err)
	b.produce(&kgo.Record{Key: []byte(ev.SessionID), Value: value})
}

// produce puts records on the topic of turns, each where its key belongs, and returns when the brokers have them.
func (b *bed) produce(records ...*kgo.Record) {
	b.Helper()
	for _, r := range records {
		r.Partition = partitionOf(string(r.Key))
	}
	b.produceThere(records...)
}

// produceThere puts records on the partitions they name.
func (b *bed) produceThere(records ...*kgo.Record) {
	b.Helper()
	for _, r := range records {
		r.Topic = b.topic("turns")
	}
	b.must(b.cl.ProduceSync(b.ctx, records...).FirstErr())
}

// partitionOf is the partition that a key belongs to, as Java producers reckon.
func partitionOf(key string) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("turns").Partition(&kgo.Record{Key: []byte(key)}, turnPartitions)
	return int32(p)
}

// sendBad sends a record that must become a dead letter for one of the reasons.
func (b *bed) sendBad(what string, rec *kgo.Record, may ...string) {
	b.Helper()
	b.produceThere(rec)
	b.dead = append(b.dead, deadLetter{partition: rec.Partition, offset: rec.Offset, may: may, what: what, value: rec.Value})
}
