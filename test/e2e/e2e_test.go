// Package e2e_test runs real worker processes against a broker, kills and stops them, and lets an oracle check every promise
// on what they left behind: the events a read_committed reader sees, a ledger of what the tools did, the dead letters, the
// committed offsets and the changelog.
//
// The worker is this test binary itself, run again with LATHE_TEST_CHILD set: the commands of the product with the tools of
// program_test.go and hooks that end or stop the process at a step of the commit cycle. Without a build tag the broker is
// kfake, in this process; with the tag kafka the same tests run on Apache Kafka, and some that need it are added.
package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/cli"
	"github.com/lathe-run/lathe/test/internal/trap"
	"github.com/lathe-run/lathe/test/internal/world"
)

// patience is how long anything may take on a busy machine before its test fails.
const patience = 2 * time.Minute

// Environment of a child; the settings take LATHE_TEST_ names as not theirs.
const (
	// envChild makes this binary the worker.
	envChild = "LATHE_TEST_CHILD"
	// envDir is the folder that the tools share with the test: the ledger, and files that release calls.
	envDir = "LATHE_TEST_DIR"
	// envSignals says where the process signals itself, see package trap.
	envSignals = trap.Env
	// envHost is the host name that a process in a namespace of its own gives itself.
	envHost = "LATHE_TEST_HOST"
)

func TestMain(m *testing.M) {
	if os.Getenv(envChild) == "" {
		os.Exit(runTests(m))
	}
	os.Exit(child())
}

// child is the worker: the product's commands with the suite's tools.
func child() int {
	if err := takeHostName(os.Getenv(envHost)); err != nil {
		panic(err)
	}
	hooks, err := trap.Hooks(os.Getenv(envSignals))
	if err != nil {
		panic(err)
	}
	w, err := world.Open(os.Getenv(envDir))
	if err != nil {
		panic(err)
	}
	env := cli.OSEnv()
	env.Options.Hooks = hooks
	return cli.Main(context.Background(), os.Args[1:], program(w), env)
}
