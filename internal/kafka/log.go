package kafka

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// clientLog gives the log lines of a client to slog, informative ones a level lower: a transactional client has several
// for each transaction, hundreds a second.
type clientLog struct{ to *kslog.Logger }

func newClientLog(logger *slog.Logger) clientLog { return clientLog{to: kslog.New(logger)} }

// Level returns the most verbose level that slog takes.
func (l clientLog) Level() kgo.LogLevel {
	switch level := l.to.Level(); level {
	case kgo.LogLevelDebug:
		return kgo.LogLevelInfo
	case kgo.LogLevelInfo:
		return kgo.LogLevelWarn
	case kgo.LogLevelNone, kgo.LogLevelError, kgo.LogLevelWarn:
		return level
	}
	return kgo.LogLevelNone
}

// Log writes one line.
func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level >= kgo.LogLevelInfo {
		level = kgo.LogLevelDebug
	}
	l.to.Log(level, msg, keyvals...)
}
