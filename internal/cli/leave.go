package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
)

func newLeave(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "leave <instance-id>...",
		Short: "Take workers that are gone for good out of the group",
		Long: `Takes static members out of the consumer group, by their LATHE_INSTANCE_ID. A worker with an instance id keeps its place
when it stops, so that it has its partitions back at once when it comes again; if it does not come again, they are idle until
LATHE_SESSION_TIMEOUT has passed. This gives them to the others now: after a scale-in, or when a node is gone.

Only for workers that do not run any more. One that does loses its partitions, drops what it has in hand and joins anew. To let
workers leave by themselves whenever they stop, set LATHE_LEAVE_ON_STOP=true.

Exit status 0 says that all of them are out of the group now, or were before.`,
		Example: `  kubectl scale statefulset lathe --replicas=2 && kubectl wait --for=delete pod/lathe-2 --timeout=2m
  worker leave lathe-2`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error { return leaveGroup(cmd.Context(), env, ids) },
	}
}

func leaveGroup(ctx context.Context, env Env, ids []string) error {
	s, err := loadSettings(ctx, env, true)
	if err != nil {
		return err
	}
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return refusedError{err}
	}
	defer cl.Close()
	var faults []error
	for _, id := range ids {
		was, err := takeOut(ctx, cl, s.App, id)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("take %s out of group %s: %w", id, s.App, err))
		case was:
			say(env.Stdout, "%s is out of group %s\n", id, s.App)
		default:
			say(env.Stdout, "%s was not in group %s\n", id, s.App)
		}
	}
	return errors.Join(faults...)
}

// takeOut takes a static member out of a group of either protocol, and reports whether it was in it.
func takeOut(ctx context.Context, cl *kgo.Client, group, id string) (was bool, err error) {
	adm := kadm.NewClient(cl)
	// Brokers that do not know the consumer protocol, or have the group under the other one, say so here.
	described, err := adm.DescribeConsumerGroups(ctx, group)
	if err == nil && described[group].Err == nil {
		for _, m := range described[group].Members {
			if m.InstanceID != nil && *m.InstanceID == id {
				return true, consumer.LeaveConsumerGroup(ctx, cl, group, m.MemberID, id)
			}
		}
		return false, nil
	}
	left, err := adm.LeaveGroup(ctx, kadm.LeaveGroup(group).Reason("taken out by hand").InstanceIDs(id))
	if err == nil {
		err = left[id].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnknownMemberID) {
		return false, nil
	}
	return err == nil, err
}
