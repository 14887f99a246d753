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
	if fault := a.retentionFault(ctx, set.Turns); fault != nil {
		faults = append(faults, fault)
	}
	if keeps := set.Changelog.DeleteRetention; keeps != Forever && keeps < minDeleteRetention {
		faults = append(faults, fmt.Errorf("topic %s has delete.retention.ms of %s, but at least %s is needed: a worker that "+
			"comes back would not see what was deleted", set.Changelog.Name, keeps, minDeleteRetention))
	}
	return errors.Join(faults...)
}

// retentionFault is the refusal of a topic of turns that keeps records for longer than turns are remembered. A record is kept until
// its segment is closed and all of it is older than the retention.
func (a topicAdmin) retentionFault(ctx context.Context, turns TopicInfo) error {
	remembered := a.cfg.DedupeRetention
	switch {
	case remembered == 0:
		return nil
	case turns.Retention != Forever && turns.Segment != Forever && turns.Retention <= maxDuration-turns.Segment:
		if kept := turns.Retention + turns.Segment; kept > remembered {
			return fmt.Errorf("topic %s keeps records for up to %s (retention.ms %s + segment.ms %s), but an ended turn is remembered for "+
				"%s: one that is read again after that would run again. Set LATHE_DEDUPE_RETENTION=%s or more, or lower "+
				"retention.ms or segment.ms of the topic", turns.Name, span(kept), span(turns.Retention), span(turns.Segment), span(remembered), span(kept))
		}
		return nil
	case !a.cfg.AllowInfiniteTurns:
		return fmt.Errorf("topic %s keeps records for ever (retention.ms %s, segment.ms %s), but an ended turn is remembered for %s: one that "+
			"is read again after that would run again. Set retention.ms and segment.ms of the topic so that together they are "+
			"at most LATHE_DEDUPE_RETENTION, or set LATHE_ALLOW_INFINITE_TURNS_RETENTION=true if old records are never read again",
			turns.Name, span(turns.Retention), span(turns.Segment), span(remembered))
	}
	a.log.WarnContext(ctx, "topic of turns keeps records for ever: one that is read again after the dedupe retention runs again",
		slog.String("topic", turns.Name), slog.String("dedupe_retention", span(remembered)))
	return nil
}

// span writes a duration as the settings take it, in days where it is whole days.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == Forever:
		return "for ever"
	case d > 0 && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
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
