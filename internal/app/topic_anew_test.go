package app

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lathe-run/lathe/internal/consumer"
)

// turnsAnew deletes the topic of turns and makes another under its name.
func (c *counter) turnsAnew() {
	c.t.Helper()
	adm := kadm.NewClient(c.client)
	_, err := adm.DeleteTopic(c.t.Context(), "turns")
	must(c.t, err)
	made, err := adm.CreateTopic(c.t.Context(), bubblePartitions, 1, nil, "turns")
	must(c.t, err)
	c.topics["turns"] = consumer.Topic{Name: "turns", ID: made.ID, Partitions: bubblePartitions, MaxMessageBytes: 1 << 20}
}

// A turn under way whose topic is made anew goes on when its worker starts again: its record will not come again, though its offset
// is not below where the new topic is read from.
func TestTopicMadeAnew_ATurnUnderWayEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, "clerk")
		c.killedWhilePaying(turnOf("clerk", "t", "s"))
		c.turnsAnew()
		c.start()
		c.until("the turn ends", func() bool {
			c.poll()
			return c.ended["t"] != nil
		})
		c.wantOutputs(once())
	})
}
