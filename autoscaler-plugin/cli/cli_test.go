package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/pool"
)

// recorded is a provider with three instances of the past, and a market to start.
type recorded struct{ failing bool }

func (recorded) Launch(context.Context, cloud.Launch) (cloud.Instance, error) {
	return cloud.Instance{}, cloud.ErrUnavailable
}
func (recorded) Terminate(context.Context, string, string) error { return nil }
func (recorded) Offers(context.Context) ([]cloud.Offer, error)   { return nil, nil }
func (recorded) StartMarket(context.Context) (bool, time.Time, error) {
	return true, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), nil
}

func (r recorded) List(context.Context) ([]cloud.Instance, error) {
	if r.failing {
		return nil, errors.New("records are not readable")
	}
	now := time.Now()
	return []cloud.Instance{
		{ID: "west-0a", Offering: "west", Kind: cloud.Spot, Region: "west", PriceUSDPerHour: 1, State: cloud.Gone, LaunchedAt: now.Add(-3 * time.Hour), EndedAt: now.Add(-time.Hour), Reason: "reclaimed"},
		{ID: "west-0b", Offering: "west", Kind: cloud.Spot, Region: "west", PriceUSDPerHour: 1, State: cloud.Noticed, LaunchedAt: now.Add(-time.Hour), Deadline: now.Add(90 * time.Second), Reason: "the market took it"},
		{ID: "od-0c", Offering: "od", Kind: cloud.OnDemand, Region: "east", PriceUSDPerHour: 5, State: cloud.Running, LaunchedAt: now.Add(-time.Hour)},
	}, nil
}

func program() Program {
	return Program{
		Openers: map[string]pool.Opener{
			"recorded": func(cloud.Setup) (pool.Provider, error) { return recorded{}, nil },
			"failing":  func(cloud.Setup) (pool.Provider, error) { return recorded{failing: true}, nil },
		},
		RunInstance: func(_ context.Context, dir string, _ hclog.Logger) error { return fmt.Errorf("supervise %s", dir) },
		RunInit:     func(_ context.Context, dir string) error { return fmt.Errorf("init in %s", dir) },
		Version:     "1.2.3", Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		Name: func() { os.Exit(program().Run(context.Background(), os.Args[1:])) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// The pool file needs an absolute path of its state.
			data, err := os.ReadFile("testdata/pool.hcl")
			if err != nil {
				return err
			}
			text := bytes.ReplaceAll(data, []byte("WORK"), []byte(env.WorkDir))
			return os.WriteFile(filepath.Join(env.WorkDir, "pool.hcl"), text, 0o600)
		},
	})
}

func TestRun_exitCodes(t *testing.T) {
	for want, args := range map[int][][]string{
		exitOK:     {{"--help"}, {"status", "--help"}, {"--version"}},
		exitFailed: {{"status", "--pool", "/nowhere.hcl"}, {"market", "start", "--pool", "/nowhere.hcl"}, {"init", "--dir", "/x"}},
		exitUsage:  {{}, {"nothing"}, {"status"}, {"status", "--wrong"}, {"status", "--pool", "x", "y"}, {"market"}, {"market", "stop"}, {"instance"}},
	} {
		for _, a := range args {
			p := program()
			p.Stdout, p.Stderr = io.Discard, io.Discard
			must.Eq(t, want, p.Run(t.Context(), a), must.Sprint(a))
		}
	}
}

// The plugin ends when the process that started it has.
func TestWatchParent(t *testing.T) {
	done := make(chan struct{})
	go func() { watchParent(t.Context(), os.Getppid()+1); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the death of the parent was not seen")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	watchParent(ctx, os.Getppid())
	must.GreaterEq(t, 50*time.Millisecond, time.Since(start))
}
