package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms, as Kafka names them; settings may write them in any case.
const (
	SASLPlain       = "PLAIN"
	SASLScramSHA256 = "SCRAM-SHA-256"
	SASLScramSHA512 = "SCRAM-SHA-512"
)

// SASL says how to log in at the brokers; without a Mechanism there is no login.
type SASL struct {
	Mechanism string
	Username  string
	// Password is used as it is.
	Password string
	// PasswordPath is a file that is read at each login, so that a changed password needs no restart; instead of Password.
	PasswordPath string
}

func (c Config) saslFaults() []error {
	s := c.withDefaults().SASL
	if s.Mechanism == "" {
		if s == (SASL{}) {
			return nil
		}
		return []error{errors.New("sasl: a user or password is given, but no mechanism")}
	}
	var faults []error
	switch s.Mechanism {
	case SASLPlain:
		if !c.TLS.Enabled && !c.onLoopback() {
			faults = append(faults, errors.New(
				"sasl: PLAIN would send the password in the clear: enable tls or use SCRAM-SHA-512"))
		}
	case SASLScramSHA256, SASLScramSHA512:
	default:
		faults = append(faults, fmt.Errorf("sasl: mechanism %q is none of %s, %s, %s",
			s.Mechanism, SASLPlain, SASLScramSHA256, SASLScramSHA512))
	}
	if s.Username == "" {
		faults = append(faults, errors.New("sasl: no user is given"))
	}
	if (s.Password == "") == (s.PasswordPath == "") {
		faults = append(faults, errors.New("sasl: give either a password or a file that holds it"))
	}
	return faults
}

// options logs in with the mechanism of validated settings.
func (s SASL) options() []kgo.Opt {
	switch s.Mechanism {
	case SASLPlain:
		return []kgo.Opt{kgo.SASL(plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, err
		}))}
	case SASLScramSHA256:
		return []kgo.Opt{kgo.SASL(scram.Sha256(s.scram))}
	case SASLScramSHA512:
		return []kgo.Opt{kgo.SASL(scram.Sha512(s.scram))}
	}
	return nil
}

func (s SASL) scram(context.Context) (scram.Auth, error) {
	password, err := s.password()
	return scram.Auth{User: s.Username, Pass: password}, err
}

func (s SASL) password() (string, error) { return secret(s.Password, s.PasswordPath) }

// secret returns a secret as it is, or reads it from a file if there is one; a line end behind it does not count.
func secret(value, path string) (string, error) {
	if path == "" {
		return value, nil
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the operator says which file
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}
