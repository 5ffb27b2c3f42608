package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// each calls f for every command that does something, by its path, such as "store register".
func each(f func(path string, c *cobra.Command)) {
	var walk func(prefix string, c *cobra.Command)
	walk = func(prefix string, c *cobra.Command) {
		path := strings.TrimSpace(prefix + " " + c.Name())
		if !c.HasSubCommands() {
			f(path, c)
		}
		for _, sub := range c.Commands() {
			walk(path, sub)
		}
	}
	for _, c := range commands {
		walk("", c(&line{}))
	}
}

// call runs a command line.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(context.Background(), "1.2.3", args, &out, &err)
	return code, out.String(), err.String()
}

// Every command tells all that is wrong with its line at once, on standard error alone, and does nothing.
func TestUsage(t *testing.T) {
	t.Setenv("SPOTTER_KEY", "")
	wrong := map[string]string{"number": "many", "duration": "soon"}
	each(func(path string, c *cobra.Command) {
		t.Run(path, func(t *testing.T) {
			must.NotEq(t, "", c.Short)
			must.StrContains(t, c.Example, "checkpointer "+path)
			name := strings.Fields(path)

			// Flags that do not exist, and one without its value.
			code, stdout, stderr := call(append(name, "--nonsense", "--folly=1", "-x")...)
			must.EqOp(t, exitUsage, code)
			must.EqOp(t, "", stdout)
			for _, want := range []string{"checkpointer: unknown flag: --nonsense\n", "checkpointer: unknown flag: --folly\n", "checkpointer: unknown flag: -x\n", "Run `checkpointer --help` for usage.\n"} {
				must.StrContains(t, stderr, want)
			}
			var flags []string
			c.Flags().VisitAll(func(f *pflag.Flag) {
				must.NotEq(t, "", f.Usage)
				if f.NoOptDefVal == "" {
					code, stdout, stderr := call(append(name, "--"+f.Name)...)
					must.EqOp(t, exitUsage, code)
					must.EqOp(t, "", stdout)
					must.StrContains(t, stderr, fmt.Sprintf("flag --%s needs a value: ", f.Name))
				}
				if v, ok := wrong[f.Value.Type()]; ok {
					flags = append(flags, "--"+f.Name, v)
				}
			})

			// Every wrong value is told.
			code, stdout, stderr = call(append(name, flags...)...)
			for i := 0; i < len(flags); i += 2 {
				must.StrContains(t, stderr, fmt.Sprintf("invalid argument %q for %q: ", flags[i+1], flags[i]))
			}
			if len(flags) > 0 {
				must.EqOp(t, exitUsage, code)
				must.EqOp(t, "", stdout)
			}

			// Too many arguments.
			code, _, stderr = call(append(name, "one", "two", "three")...)
			must.EqOp(t, exitUsage, code)
			must.StrContains(t, stderr, c.Name()+" takes ")

			// An empty one.
			code, _, stderr = call(append(name, "")...)
			must.EqOp(t, exitUsage, code)
			must.StrContains(t, stderr, c.Name()+" takes ")

			code, stdout, stderr = call(append(name, "--help")...)
			must.EqOp(t, exitDone, code)
			must.EqOp(t, "", stderr)
			must.StrContains(t, stdout, "Examples:\n  checkpointer ")
		})
	})
}

// What takes a store takes it in the same way.
func TestStoreFlags(t *testing.T) {
	each(func(path string, c *cobra.Command) {
		if c.Flags().Lookup("store") == nil || c.Flags().Lookup("consul") == nil {
			return
		}
		for _, args := range [][]string{nil, {"--store", "file:///x", "--consul", "http://127.0.0.1:1"}} {
			code, _, stderr := call(append(strings.Fields(path), args...)...)
			must.EqOp(t, exitUsage, code, must.Sprint(path))
			must.StrContains(t, stderr, "give exactly one of --store URL and --consul ADDRESS", must.Sprint(path))
		}
		for flag, value := range map[string]string{"--store": "nosuch://bucket", "--consul": "ftp://x"} {
			code, _, stderr := call(append(strings.Fields(path), flag, value)...)
			must.EqOp(t, exitUsage, code, must.Sprint(path))
			must.StrContains(t, stderr, "checkpointer: "+flag+": ", must.Sprint(path))
		}
	})
}

// What a configuration says of its fields is said of the flags that made them, once.
func TestFaultsOf(t *testing.T) {
	l := &line{}
	l.fault("--effort: %q is unknown", "most")
	l.faultsOf(errors.Join(
		errors.New("effort: unknown"), errors.New("checkpoint_dir: no\npath: at all"), errors.New("control_socket: long"), errors.New("task_socket: long"),
		errors.New("replicas: few"), errors.New("consul: none"),
	))
	l.faultsOf(errors.New("no directory"))
	must.EqError(t, l.err(), `--effort: "most" is unknown
--dir: no
path: at all
--state-dir: long
--replicas: few
--consul, --service: none
no directory`)
}

// An address of a Consul agent is looked at before anything is asked of it, or written.
func TestConsulAddress(t *testing.T) {
	for value, ok := range map[string]bool{
		"http://127.0.0.1:8500": true, "https://consul": true, "127.0.0.1:8500": true, "[::1]:8500": true, "unix:///run/consul.sock": true,
		"nonsense": false, "ftp://x": false, "a b": false, "http://": false, "http://a b": false, ":8500": false, "host:": false,
	} {
		for _, args := range [][]string{
			{"claim", "--store", "file:///dev/null/none", "--lineage", "l", "--epochs", value},
			{"save", "c_1", "--store", "file:///dev/null/none", "--lineage", "l", "--epochs", value},
		} {
			code, _, stderr := call(args...)
			must.EqOp(t, ok, code != exitUsage, must.Sprint(value))
			must.EqOp(t, ok, !strings.Contains(stderr, "checkpointer: --epochs: "), must.Sprint(stderr))
		}
		l := &line{}
		(&consulFlags{address: value}).needed(l)
		must.EqOp(t, ok, l.err() == nil, must.Sprint(value))
	}
}
