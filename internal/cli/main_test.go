package cli

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/lathe-run/lathe/internal/app"
)

// childVariable makes the test binary behave as the worker binary: the demo and the benchmark start themselves again.
const (
	childVariable    = "LATHE_TEST_CHILD"
	carelessVariable = "LATHE_TEST_CARELESS"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		env := OSEnv()
		env.Careless = os.Getenv(carelessVariable) != ""
		os.Exit(Main(context.Background(), os.Args[1:], app.Program{Version: "test"}, env))
	}
	os.Exit(m.Run())
}

// testEnv is an environment whose children are this test binary.
func testEnv(t *testing.T, out io.Writer, more ...string) Env {
	t.Helper()
	environ := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), childVariable + "=1"}, more...)
	return Env{Stdout: out, Stderr: t.Output(), Environ: environ}
}
