// Command torture attacks workers on a three-broker Apache Kafka and says whether they kept their promises.
//
//	TORTURE_SEED=7 TORTURE_MINUTES=3 TORTURE_ATTACKS=kill,stop_session torture
//
// The last line on standard output is one JSON object. The exit status is 1 when a promise was broken, 2 when the torture itself
// could not be done. Run again with the argument worker it is a worker; only it does that.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lathe-run/lathe/test/torture"
	"github.com/lathe-run/lathe/test/torture/worker"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		os.Exit(worker.Main(context.Background(), os.Args[1:])) //nolint:forbidigo // main makes the context and ends the process
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main makes the context
	code, err := torture.Main(ctx, os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	os.Exit(code) //nolint:forbidigo // the status is the answer
}
