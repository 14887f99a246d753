package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// leave closes the group's client and ends the membership. Closing may hang, when the brokers do not answer or a partition cannot
// be let go of; then it is left behind.
//
// A dynamic member leaves. A static one keeps its place, so that it has its partitions back when it comes again, unless it goes for
// good: then they are given to others at once, and not when its session ends.
func (w *Worker) leave(ctx context.Context, g *kgo.Client, forGood bool) {
	m := w.membership()
	closed := returns(g.Close)
	w.client.CompareAndSwap(g, nil)
	req := w.farewell(m, closed, forGood)
	if req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if err := sayFarewell(ctx, w.changelog.cl, req); err != nil {
		w.log.WarnContext(ctx, "the group does not know that we left; it notices when our session ends", slog.Any("error", err))
		return
	}
	w.log.InfoContext(ctx, "the group was left", slog.String("member", m.MemberID), slog.Bool("for_good", forGood || m.InstanceID == nil))
}

// Member epochs with which a member of the consumer protocol leaves: for good, or for a while if it is static.
const (
	epochLeave       = -1
	epochLeaveStatic = -2
)

// farewell is what is to be sent after the client was closed, which has told the group itself only that a dynamic member leaves:
// under the classic protocol a static one has nothing to say unless it goes for good, and under the consumer protocol the client's
// own farewell of a static member lacks the instance id and is refused, so that the id would stay taken until the session ends. The
// member id goes with all of them: a successor under our instance id is never thrown out.
func (w *Worker) farewell(m txn.Membership, closed, forGood bool) kmsg.Request {
	static := m.InstanceID != nil
	switch {
	case m.MemberID == "", !static && closed:
		return nil
	case w.cfg.Protocol == ProtocolConsumer:
		epoch := int32(epochLeave)
		if static && !forGood {
			epoch = epochLeaveStatic
		}
		return leaveConsumer(w.cfg.Group, m.MemberID, m.InstanceID, epoch)
	case static && !forGood:
		return nil
	}
	return leaveClassic(w.cfg.Group, m.MemberID, m.InstanceID)
}

func leaveClassic(group, member string, instance *string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID, one.InstanceID = member, instance
	req.Members = append(req.Members, one)
	return req
}

func leaveConsumer(group, member string, instance *string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = group, member, instance, epoch
	return req
}

// sayFarewell sends a farewell. That the group knows the member no more, or has another in its place, is as good.
func sayFarewell(ctx context.Context, cl *kgo.Client, req kmsg.Request) error {
	resp, err := cl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("leave the group: %w", err)
	}
	switch r := resp.(type) {
	case *kmsg.LeaveGroupResponse:
		err = kerr.ErrorForCode(r.ErrorCode)
		for _, m := range r.Members {
			err = errors.Join(err, kerr.ErrorForCode(m.ErrorCode))
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		err = kerr.ErrorForCode(r.ErrorCode)
	}
	for _, gone := range []error{kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("leave the group: %w", err)
	}
	return nil
}

// LeaveConsumerGroup takes a static member out of a group of the consumer protocol for good, as that protocol has it. Apache Kafka
// 4.4 also takes the classic request by instance id for such a group; others do not.
func LeaveConsumerGroup(ctx context.Context, cl *kgo.Client, group, member, instance string) error {
	return sayFarewell(ctx, cl, leaveConsumer(group, member, &instance, epochLeave))
}
