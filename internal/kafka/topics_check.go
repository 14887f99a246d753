package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// minDeleteRetention is how long tombstones of the changelog must stay: a worker that was away for less resumes from its
// local copy and must still see them, or deleted keys would come back.
const minDeleteRetention = 24 * time.Hour

// check refuses topics that cannot keep the promises and warns about those that keep them less well.
func (a topicAdmin) check(ctx context.Context, set *TopicSet, brokers int) error {
	var faults []error
	for _, role := range a.cfg.roles() {
		info := *role.info(set)
		if info.Replicas == 1 {
			if fault := a.replicaFault(role, "exists", brokers); fault != nil {
				faults = append(faults, fault)
			} else {
				a.log.WarnContext(ctx, "topic has one replica, losing its broker loses it",
					slog.String("topic", info.Name), slog.Int("brokers", brokers))
			}
		}
		if info.Replicas >= 3 && info.MinInSync < 2 && !role.ephemeral {
			a.log.WarnContext(ctx, "topic takes records that only one replica has, set min.insync.replicas to 2",
				slog.String("topic", info.Name))
		}
		if fault := policyFault(role, info); fault != nil {
			faults = append(faults, fault)
		}
	}
	if set.Changelog.Partitions != set.Turns.Partitions {
		faults = append(faults, fmt.Errorf("topic %s has %d partitions, but %s has %d: the state of a partition is kept under "+
			"the same number, so they must be equal", set.Changelog.Name, set.Changelog.Partitions, set.Turns.Name, set.Turns.Partitions))
	}
	if keeps := set.Changelog.DeleteRetention; keeps != Forever && keeps < minDeleteRetention {
		faults = append(faults, fmt.Errorf("topic %s has delete.retention.ms of %s, but at least %s is needed: a worker that "+
			"comes back would not see what was deleted", set.Changelog.Name, keeps, minDeleteRetention))
	}
	return errors.Join(faults...)
}

// replicaFault is the refusal of a topic with one replica where more are possible, nil when that is allowed.
func (a topicAdmin) replicaFault(role topicRole, how string, brokers int) error {
	if brokers <= 1 || a.cfg.AllowSingleReplica {
		return nil
	}
	return fmt.Errorf("topic %s (%s) %s with one replica on a cluster of %d brokers, so losing one loses it: raise "+
		"default.replication.factor of the brokers or create it with --replication-factor, or set LATHE_ALLOW_SINGLE_REPLICA=true",
		role.name, role.what, how, brokers)
}

func policyFault(role topicRole, info TopicInfo) error {
	if role.compacted {
		if info.CleanupPolicy != "compact" {
			return fmt.Errorf("topic %s (%s) has cleanup.policy %q, but it must be exactly compact: anything else loses state",
				info.Name, role.what, info.CleanupPolicy)
		}
		return nil
	}
	if strings.Contains(info.CleanupPolicy, "compact") {
		return fmt.Errorf("topic %s (%s) has cleanup.policy %q: compaction would drop all but the last record of a session, "+
			"set it to delete", info.Name, role.what, info.CleanupPolicy)
	}
	return nil
}
