package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/shoenig/test/must"
	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		Name: func() { os.Exit(Main(context.Background(), "1.2.3", os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// TestScripts runs what people type. `UPDATE_SCRIPTS=1 go test ./jobs/cli -run TestScripts` writes the expected output
// within the scripts anew. Scripts that read recorded markets begin with [!data] skip.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("SPOTTER_DATA", os.Getenv("SPOTTER_DATA"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "data":
				return os.Getenv("SPOTTER_DATA") != "", nil
			case "race":
				return raceDetector, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// Every command answers --help with its purpose, an example and its exit codes, and refuses what it does not know.
func TestMain_commands(t *testing.T) {
	for _, c := range commands {
		cmd := c()
		all := append([]*cobra.Command{cmd}, cmd.Commands()...)
		for _, sub := range all {
			args := []string{cmd.Name()}
			if sub != cmd {
				args = append(args, sub.Name())
			}
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				var stdout, stderr strings.Builder
				must.Eq(t, exitDone, Main(t.Context(), "1.2.3", append(args, "--help"), &stdout, &stderr))
				must.StrContains(t, stdout.String(), "Usage:")
				must.Eq(t, "", stderr.String())
				must.NotEq(t, "", sub.Short)
				must.Eq(t, exitUsage, Main(t.Context(), "1.2.3", append(args, "--no-such-flag"), io.Discard, &stderr))
				must.StrContains(t, stderr.String(), "spotter: unknown flag: --no-such-flag")
				must.StrContains(t, stderr.String(), "--help")
			})
		}
	}
}

func TestMain_exitCodes(t *testing.T) {
	for want, args := range map[int][][]string{
		exitDone:   {{"--help"}, {"help"}, {"help", "cost"}, {"--version"}, {"cost"}},
		exitFailed: {{"cost", "--file", "/nowhere.hcl"}},
		exitUsage:  {{}, {"nothing"}, {"cost", "extra"}, {"cost", "--wrong"}, {"cost", "--hours", "x"}, {"cost", "--hours"}},
	} {
		for _, a := range args {
			must.Eq(t, want, Main(t.Context(), "1.2.3", a, io.Discard, io.Discard), must.Sprint(a))
		}
	}
}

// A writer that fails, such as a closed pipe, is an error of the command.
func TestMain_writeFails(t *testing.T) {
	var stderr strings.Builder
	must.Eq(t, exitFailed, Main(t.Context(), "1.2.3", []string{"cost"}, broken{}, &stderr))
	must.StrContains(t, stderr.String(), "spotter: the pipe is closed")
	must.Eq(t, exitFailed, Main(t.Context(), "1.2.3", []string{"cost", "--json"}, broken{}, io.Discard))
}

// A command that is interrupted ends at once, even one that does not look at its context; one that is done is done.
func TestInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	release := make(chan struct{})
	defer close(release)
	err := interruptible(ctx, func(context.Context) error {
		<-release
		return nil
	})
	must.EqError(t, err, "interrupted")
	must.EqError(t, interruptible(ctx, func(ctx context.Context) error { return ctx.Err() }), "interrupted")
	must.EqError(t, interruptible(ctx, func(context.Context) error { return errPipe }), "the pipe is closed")
	must.NoError(t, interruptible(ctx, func(context.Context) error { return nil }))
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errPipe }

var errPipe = usageless("the pipe is closed")

type usageless string

func (e usageless) Error() string { return string(e) }

func TestComplain(t *testing.T) {
	var w strings.Builder
	complain(&w, usageless("one\ntwo"))
	must.Eq(t, "spotter: one\nspotter: two\n", w.String())
}
