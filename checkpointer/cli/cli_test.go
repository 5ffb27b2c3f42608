package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"checkpointer": func() {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM) // as main does
			defer stop()
			os.Exit(Main(ctx, "1.2.3", os.Args[1:], os.Stdout, os.Stderr))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CONSUL_HTTP_TOKEN", "")
			env.Setenv("SPOTTER_KEY", "")
			// A key that nobody can guess costs no work, as a passphrase does.
			return os.WriteFile(filepath.Join(env.WorkDir, "random.key"), bytes.Repeat([]byte{1, 0, 3, 0xff}, 8), 0o600)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "consul" {
				return false, fmt.Errorf("condition %q is not known", cond)
			}
			return consulBinary() != "", nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "jsonis": jsonIs, "flip": flip, "consul": fakeConsul, "firstslot": firstSlot,
			"realconsul": realConsul, "eventually": eventually,
		},
	})
}

// exits runs a command and checks its exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		code = fmt.Sprint(exit.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, expected %s", code, args[0])
	}
}

// jsonIs compares standard output with a file, key by key; the string "*" in the file stands for any value.
func jsonIs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: jsonis FILE")
	}
	var got, want any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	ts.Check(dec.Decode(&got))
	if dec.More() {
		ts.Fatalf("more than one value on standard output")
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &want))
	if err := same("", got, want); err != nil {
		ts.Fatalf("%v\n%s", err, ts.ReadFile("stdout"))
	}
}

func same(at string, got, want any) error {
	if want == "*" {
		return nil
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v is no object", at, got)
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				return fmt.Errorf("%s: unexpected key %q", at, k)
			}
		}
		for k, v := range w {
			if _, ok := g[k]; !ok {
				return fmt.Errorf("%s: no key %q", at, k)
			}
			if err := same(at+"."+k, g[k], v); err != nil {
				return err
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: %v, expected %d elements", at, got, len(w))
		}
		for i := range w {
			if err := same(fmt.Sprintf("%s[%d]", at, i), g[i], w[i]); err != nil {
				return err
			}
		}
	default:
		if got != want {
			return fmt.Errorf("%s: %v, expected %v", at, got, want)
		}
	}
	return nil
}

// flip changes one bit of every file below a directory whose path matches: flip DIR PATTERN
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip DIR PATTERN")
	}
	pattern := regexp.MustCompile(args[1])
	found := false
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !pattern.MatchString(p) {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil || len(b) == 0 {
			return err
		}
		found = true
		b[min(3, len(b)-1)] ^= 1
		return os.WriteFile(p, b, 0o644)
	}))
	if !found {
		ts.Fatalf("no file below %s matches %s", args[0], args[1])
	}
}

// fakeConsul serves the registrations of stores and sets $CONSUL: consul URL...
func fakeConsul(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: consul URL...")
	}
	type service struct{ Meta map[string]string }
	type node struct{ Node string }
	type entry struct {
		Node    node
		Service service
	}
	list := []entry{}
	for i, u := range args {
		list = append(list, entry{node{fmt.Sprint(i)}, service{map[string]string{"url": u}}})
	}
	b, err := json.Marshal(list)
	ts.Check(err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/health/service/") || r.Header.Get("X-Consul-Token") != "" {
			http.Error(w, "not expected", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(b) // the command is gone, then
	}))
	ts.Defer(srv.Close)
	ts.Setenv("CONSUL", srv.URL)
}

// firstSlot sets $SLOT to the key slot without a comment of an encrypted store: firstslot DIR
func firstSlot(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: firstslot DIR")
	}
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "keys", "????????????????"))
	ts.Check(err)
	for _, f := range files {
		if !strings.Contains(ts.ReadFile(f), `"comment"`) {
			ts.Setenv("SLOT", filepath.Base(f))
		}
	}
}
