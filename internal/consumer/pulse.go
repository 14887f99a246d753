package consumer

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pulse knows when the group last answered. It is a hook of the group client.
//
// A worker that was stopped for longer than its session (a debugger, a moved machine) has been replaced without knowing. Commits
// of it are fenced by the broker, but nothing fences the beginning of a call; so before one begins the last answer of the group
// must be younger than the session.
type pulse struct {
	origin time.Time
	// last is when the group last answered, until the time up to which a join may take; both since origin.
	last, until atomic.Int64
	// joinTime bounds a join that is under way: the broker keeps a member that waits in one.
	joinTime time.Duration
	// fault takes what ends a session of the group.
	fault func(error)
}

var (
	_ kgo.HookBrokerWrite      = (*pulse)(nil)
	_ kgo.HookBrokerRead       = (*pulse)(nil)
	_ kgo.HookGroupManageError = (*pulse)(nil)
)

func newPulse(joinTime time.Duration, fault func(error)) *pulse {
	return &pulse{origin: time.Now(), joinTime: joinTime, fault: fault}
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (p *pulse) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && kmsg.Key(key) == kmsg.JoinGroup {
		p.until.Store(int64(time.Since(p.origin) + p.joinTime))
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (p *pulse) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	if k := kmsg.Key(key); k == kmsg.JoinGroup || k == kmsg.SyncGroup || k == kmsg.Heartbeat || k == kmsg.ConsumerGroupHeartbeat {
		p.until.Store(0)
		p.last.Store(int64(time.Since(p.origin)))
	}
}

// OnGroupManageError implements kgo.HookGroupManageError.
func (p *pulse) OnGroupManageError(err error) { p.fault(err) }

// fresh reports whether the group answered within d, or is busy with our join.
func (p *pulse) fresh(d time.Duration) bool {
	now := int64(time.Since(p.origin))
	return now-p.last.Load() < int64(d) || now < p.until.Load()
}
