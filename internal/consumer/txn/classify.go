package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// verdict is what an attempt leaves to be done.
type verdict uint8

const (
	// commitCertain: EndTxn was acknowledged, or nothing has gone wrong so far.
	commitCertain verdict = iota
	// abortClean: the slot is sound, its transaction has to be ended.
	abortClean
	// abortReplace: the transaction can never commit, and the slot can't be trusted any more.
	abortReplace
	// commitUnknown: EndTxn may or may not have been carried out.
	commitUnknown
)

// subject says what a request was about, for errors that name a resource.
type subject struct {
	topic string
	txID  string
	group string
}

// classify decides what an error of the brokers before EndTxn means: what to do with the transaction, and what the
// caller may learn. The cases follow Kafka's protocol, errors of the client and of the network are last.
func classify(err error, about subject) (verdict, error) {
	switch {
	case isAny(err, kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.RebalanceInProgress):
		return abortClean, fmt.Errorf("%w: %w", ErrRebalance, err)
	case isAny(err, kerr.UnknownMemberID, kerr.GroupIDNotFound):
		return abortClean, fmt.Errorf("%w: %w", ErrMemberUnknown, err)
	case errors.Is(err, kerr.FencedInstanceID):
		return abortClean, fmt.Errorf("%w: %w", ErrFencedInstance, err)
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID):
		return abortClean, &TopicGoneError{Topic: about.topic, Err: err}
	case isRefused(err):
		return abortClean, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, kerr.TransactionAbortable):
		return abortClean, fmt.Errorf("%w: %w", ErrTransient, err)
	}
	if resource := forbidden(err, about); resource != "" {
		return abortClean, &ConfigError{Resource: resource, Err: err}
	}
	// Fenced, expired, out of sequence, out of time, no connection: whatever is on its way for this epoch must not land
	// in a later transaction, so the slot is not used again.
	return abortReplace, fmt.Errorf("%w: %w", ErrTransient, err)
}

// forbidden names the resource of an error that only a person can repair, or returns nothing.
func forbidden(err error, about subject) string {
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return "transactional id " + about.txID
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return "transaction timeout of transactional id " + about.txID
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "group " + about.group
	case errors.Is(err, kerr.OffsetMetadataTooLarge):
		return "offset metadata of group " + about.group
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "topic " + about.topic
	case isAny(err, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat):
		return "cluster"
	}
	return ""
}

// isFence reports whether err says that somebody, or the coordinator itself, has taken the transactional id over.
func isFence(err error) bool {
	return isAny(err, kerr.ProducerFenced, kerr.InvalidProducerEpoch)
}

// isRefused reports whether a broker will never take a record.
func isRefused(err error) bool {
	return isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage,
		kerr.InvalidTimestamp)
}

// isBusy reports whether a coordinator only asks for patience.
func isBusy(err error) bool {
	return isAny(err, kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
		kerr.NotCoordinator, kerr.RequestTimedOut)
}

func isAny(err error, targets ...*kerr.Error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// cause returns why ctx ended if it did, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
