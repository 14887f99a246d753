// Command kafkaup starts Apache Kafka on this machine, runs a command against it, and stops it.
//
//	kafkaup [-brokers 1|3] [-warm 20s] [-transaction-version 1] [command args...]
//
// The command finds the addresses in LATHE_BROKERS and LATHE_TEST_BROKERS and the process ids in
// LATHE_TEST_BROKER_PIDS. Without a command the cluster runs until a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// stopDelay is how long the command has to end after a signal before it is killed.
const stopDelay = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main makes the context
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafkaup:", err)
	}
	os.Exit(code) //nolint:forbidigo // the status of the command is ours
}

// run returns the status to exit with: that of the command, or 1 with an error of our own.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("kafkaup", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		say(stderr, "kafkaup starts Apache Kafka, runs a command against it, and stops it.\n\n"+
			"  kafkaup [flags] [command args...]\n\nflags:")
		flags.PrintDefaults()
	}
	brokers := flags.Int("brokers", 1, "how many brokers")
	warm := flags.Duration("warm", 0, "how long to warm the brokers up before the command, such as 20s")
	version := flags.Int("transaction-version", 0, "level of the feature transaction.version (default: what Kafka takes)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // the flag set has printed the error
	}
	cluster, err := kafkatest.Start(ctx, kafkatest.Config{Brokers: *brokers, TransactionVersion: *version})
	if err != nil {
		return 1, err
	}
	defer cluster.Stop()
	if *warm > 0 {
		say(stderr, fmt.Sprintf("kafkaup: warming up for %s ...", *warm))
		if err := cluster.Warm(ctx, *warm); err != nil {
			return 1, err
		}
	}
	addrs := strings.Join(cluster.Addrs(), ",")
	if flags.NArg() == 0 {
		say(stdout, "LATHE_BROKERS="+addrs)
		<-ctx.Done()
		return 0, nil
	}
	say(stderr, "LATHE_BROKERS="+addrs) // standard output is the command's
	return runCommand(ctx, flags.Args(), environment(cluster, addrs), stdout, stderr)
}

// say prints a line; where nobody can read it, there is nobody to tell.
func say(w io.Writer, line string) { _, _ = fmt.Fprintln(w, line) }

func environment(cluster *kafkatest.Cluster, addrs string) []string {
	var pids []string
	for _, pid := range cluster.PIDs() {
		pids = append(pids, strconv.Itoa(pid))
	}
	return append(os.Environ(), "LATHE_BROKERS="+addrs,
		kafkatest.EnvBrokers+"="+addrs, kafkatest.EnvBrokerPIDs+"="+strings.Join(pids, ","))
}

func runCommand(ctx context.Context, args, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // running what the caller says is the purpose
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopDelay
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("run %s: %w", args[0], err)
	}
	return 0, nil
}
