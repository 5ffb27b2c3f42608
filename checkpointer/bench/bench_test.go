package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childWord { // a measurement in a process of its own
		if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
			io.WriteString(os.Stderr, err.Error()+"\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The benchmark runs from end to end on a small series with the command built here, and what it restores is compared.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "checkpointer")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/checkpointer").CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	series := filepath.Join(dir, "series", "tiny")
	must.NoError(t, os.MkdirAll(series, 0o755))
	f, err := noise(filepath.Join(series, "ckpt_0001.pt"), 1<<20)
	must.NoError(t, err)
	b, err := os.ReadFile(f.Path)
	must.NoError(t, err)
	copy(b[5000:], "another state")
	must.NoError(t, os.WriteFile(filepath.Join(series, "ckpt_0002.pt"), b, 0o644))

	mkdir, err := exec.LookPath("mkdir")
	must.NoError(t, err)
	must.NoError(t, os.Mkdir(filepath.Join(dir, "path"), 0o755))
	must.NoError(t, os.Symlink(mkdir, filepath.Join(dir, "path", "mkdir")))
	t.Setenv("PATH", filepath.Join(dir, "path")) // no peers
	var stdout, stderr bytes.Buffer
	html := filepath.Join(dir, "report.html")
	err = run(t.Context(), []string{
		"--checkpointer", binary, "--series-dir", filepath.Dir(series), "--series", "tiny", "--given", series, "--work", dir,
		"--parts", "series,codec", "--repetitions", "1", "--json", "--report", html,
	}, &stdout, &stderr)
	must.NoError(t, err, must.Sprint(stderr.String()))
	var r Report
	must.NoError(t, json.Unmarshal(stdout.Bytes(), &r))
	seen := map[string]bool{}
	for _, s := range r.Summaries {
		if !s.Ours {
			continue
		}
		must.EqOp(t, "", s.Failure)
		must.EqOp(t, 0, s.Miscounted)
		must.Positive(t, s.SaveCPUPerGB)
		if s.Exact {
			must.Positive(t, s.Compared)
			seen[s.Series+" "+s.Effort] = true
		}
		if s.Series == "tiny" && s.Exact {
			total, later := .51, .1 // the second is what changed of the first
			if s.Effort == "fast" { // of which it stores the block, one of eight: its base stands alone and cannot be coded
				total, later = .57, .13
			}
			must.Between(t, .5, s.Total, total)
			must.Less(t, later, s.Later)
		}
	}
	for _, s := range []string{"tiny", "given", "noise"} {
		for _, e := range efforts {
			must.True(t, seen[s+" "+e], must.Sprint(s, e))
		}
	}
	page, err := os.ReadFile(html)
	must.NoError(t, err)
	must.StrContains(t, string(page), "<svg")
	must.StrNotContains(t, string(page), "src=\"http")
	left, err := filepath.Glob(filepath.Join(dir, "bench-*"))
	must.NoError(t, err)
	must.SliceEmpty(t, left)
}

// What a contender restores is compared: one that changes a byte has failed.
func TestCompareFiles(t *testing.T) {
	dir := t.TempDir()
	a, err := noise(filepath.Join(dir, "a"), 200_000)
	must.NoError(t, err)
	b, err := noise(filepath.Join(dir, "b"), 200_000)
	must.NoError(t, err)
	must.NoError(t, compareFiles(a.Path, b.Path))
	longer, err := noise(filepath.Join(dir, "c"), 200_001)
	must.NoError(t, err)
	must.ErrorIs(t, compareFiles(a.Path, longer.Path), errDiffer)
	must.ErrorIs(t, compareFiles(longer.Path, a.Path), errDiffer)
	raw, err := os.ReadFile(b.Path)
	must.NoError(t, err)
	raw[150_000]++
	must.NoError(t, os.WriteFile(b.Path, raw, 0o600))
	must.ErrorIs(t, compareFiles(a.Path, b.Path), errDiffer)
}

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an argument":       {[]string{"fast"}, `there is no argument "fast"`},
		"no repetitions":    {[]string{"--repetitions", "0"}, "--repetitions: 0 is less than 1"},
		"unknown part":      {[]string{"--parts", "series,gpu"}, `--parts: there is no part "gpu"; there are series, codec, s3, stall, many`},
		"two forms at once": {[]string{"--json", "--markdown"}, "--json and --markdown exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			must.EqError(t, run(t.Context(), c.args, io.Discard, io.Discard), c.want)
		})
	}
}

func TestStepOf(t *testing.T) {
	for base, want := range map[string]int64{"ckpt_0100.pt": 100, "ckpt_7.pt": 7, "ckpt_.pt": -1, "ckpt_-1.pt": -1, "model_0100.pt": -1, "ckpt_1.safetensors": -1} {
		n, ok := stepOf(base, "ckpt_", ".pt")
		must.EqOp(t, want >= 0, ok, must.Sprint(base))
		if ok {
			must.EqOp(t, want, n)
		}
	}
}

func TestGoals(t *testing.T) {
	sum := func(series, contender, effort string, ours bool, total, cpu float64) Summary {
		return Summary{Series: series, Contender: contender, Effort: effort, Ours: ours, Exact: true, Total: total, SaveCPUPerGB: cpu}
	}
	goals := ratioGoals([]Summary{
		sum("fp32", "checkpointer fast", "fast", true, .80, 1), sum("fp32", "checkpointer small", "small", true, .78, 3),
		sum("fp32", "restic auto", "", false, .91, 8), sum("fp32", "zstd -1", "", false, .92, .5),
	}, nil)
	find := func(name string) Goal {
		for _, g := range goals {
			if strings.HasPrefix(g.Name, name) {
				return g
			}
		}
		t.Fatalf("no goal %q", name)
		return Goal{}
	}
	g := find("fp32 + AdamW series")
	must.EqOp(t, "yes: small", g.answer())
	must.EqOp(t, "≤ 0.79", g.bound())
	cpu := find("save, file + fsync, fp32: CPU per byte")
	must.EqOp(t, "yes: fast", cpu.answer()) // against restic; zstd keeps no history
	must.EqOp(t, 8, cpu.Measured[0].Value)
	must.StrHasPrefix(t, "not measured: ", find("given small series, total").answer())

	var text, md bytes.Buffer
	must.NoError(t, goalTable([]Goal{g}).text(&text))
	must.StrContains(t, text.String(), "goal                                     bound  fast  small     reached\n")
	must.NoError(t, goalTable([]Goal{g}).markdown(&md))
	must.StrContains(t, md.String(), "| fp32 + AdamW series, stored/raw, total | ≤ 0.79 | 0.8 | 0.78 | yes: small |\n")
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 123.6: "124", 12.34: "12.3", 1.5: "1.5", .79: "0.79", .00042: "0.00042", -2: "-2"} {
		must.EqOp(t, want, number(v))
	}
	must.EqOp(t, 2, median([]float64{3, 1, 2, 9}))
	must.EqOp(t, 0, median(nil))
}

// The slow link carries everything, both ways, unchanged.
func TestLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	defer l.Close()
	go func() { // echoes one connection; ends with it
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	k, err := newLink(t.Context(), l.Addr().String(), 50e6)
	must.NoError(t, err)
	c, err := net.Dial("tcp", k.Addr())
	must.NoError(t, err)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	must.NoError(t, err)
	must.Eq(t, want, got)
	must.NoError(t, c.Close())
	must.NoError(t, k.Close())
}
