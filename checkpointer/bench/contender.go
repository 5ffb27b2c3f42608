package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Contender is a tool in one setting.
type Contender struct {
	Name   string
	Ours   bool
	Effort string // of ours, as the flag says it; "" where there is no such flag
	Exact  bool   // restores every byte
	tool   tool
}

// tool saves files into a repository of its own and restores them. dir is the contender's own folder; the repository is
// dir/repo, and everything that the tool keeps elsewhere (caches, keys) is below dir too.
type tool interface {
	// setUp returns the commands that make an empty repository; they are not measured.
	setUp(dir string) []Command
	// save returns the command that saves a checkpoint. constant is the same file under a name that never changes, in
	// dir/work.
	save(dir, constant string, f File) Command
	// restore returns the command that restores the checkpoint of a step below to, and where the file then is.
	restore(dir, to string, f File) (c Command, restored string)
}

const (
	repoDir      = "repo"
	workDir      = "work"
	constantName = "checkpoint"
)

func repo(dir string) string { return filepath.Join(dir, repoDir) }

// spotter is our own command.
type spotter struct {
	binary string
	flags  []string
}

func (s spotter) setUp(dir string) []Command {
	return []Command{{Args: []string{"mkdir", "-p", repo(dir)}}}
}

func (s spotter) save(dir, _ string, f File) Command {
	args := []string{s.binary, "save", f.Path, "--store", "file://" + repo(dir), "--lineage", "bench", "--step", step(f), "--json"}
	return Command{Args: append(args, s.flags...), Env: s.env(dir)}
}

// env keeps what the command remembers between calls within dir.
func (spotter) env(dir string) []string {
	return []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}
}

func (s spotter) restore(dir, to string, f File) (Command, string) {
	return Command{
		Args: []string{
			s.binary, "restore", "--store", "file://" + repo(dir), "--lineage", "bench", "--step", step(f), "--to", to, "--json",
		},
		Env: s.env(dir),
	}, filepath.Join(to, filepath.Base(f.Path))
}

// savedJSON is what we need of what `checkpointer save --json` prints.
type savedJSON struct {
	RawBytes    int64   `json:"raw_bytes"`
	StoredBytes int64   `json:"stored_bytes"`
	WallS       float64 `json:"wall_s"`
	CPUS        float64 `json:"cpu_s"`
}

func parseSaved(out string) (savedJSON, error) {
	var s savedJSON
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("read the answer of checkpointer save: %w", err)
	}
	if s.RawBytes <= 0 || s.StoredBytes < 0 {
		return s, fmt.Errorf("the answer of checkpointer save has raw_bytes %d and stored_bytes %d", s.RawBytes, s.StoredBytes)
	}
	return s, nil
}

// restic encrypts everything with a key that it derives from a password, on purpose slowly, at every call.
type restic struct{ compression string }

func (r restic) command(dir string, args ...string) Command {
	return Command{
		Args: append([]string{"restic"}, args...), Dir: filepath.Join(dir, workDir),
		Env: []string{"RESTIC_PASSWORD=bench", "RESTIC_REPOSITORY=" + repo(dir), "RESTIC_CACHE_DIR=" + filepath.Join(dir, "cache")},
	}
}

func (r restic) setUp(dir string) []Command { return []Command{r.command(dir, "init", "--quiet")} }

func (r restic) save(dir, constant string, f File) Command {
	return r.command(dir, "backup", "--quiet", "--compression", r.compression, "--tag", "step"+step(f), filepath.Base(constant))
}

func (r restic) restore(dir, to string, f File) (Command, string) {
	return r.command(dir, "restore", "latest", "--quiet", "--tag", "step"+step(f), "--target", to), filepath.Join(to, constantName)
}

// borg runs without encryption.
type borg struct{ compression string }

func (b borg) command(dir, cwd string, args ...string) Command {
	return Command{
		Args: append([]string{"borg"}, args...), Dir: cwd,
		Env: []string{
			"BORG_BASE_DIR=" + filepath.Join(dir, "borg"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes",
			"BORG_RELOCATED_REPO_ACCESS_IS_OK=yes",
		},
	}
}

func (b borg) setUp(dir string) []Command {
	return []Command{b.command(dir, dir, "init", "--encryption", "none", repo(dir))}
}

func (b borg) save(dir, constant string, f File) Command {
	return b.command(dir, filepath.Dir(constant), "create", "--compression", b.compression, repo(dir)+"::step"+step(f),
		filepath.Base(constant))
}

func (b borg) restore(dir, to string, f File) (Command, string) {
	return b.command(dir, to, "extract", repo(dir)+"::step"+step(f)), filepath.Join(to, constantName)
}

// kopia encrypts.
type kopia struct{ compression string }

func (k kopia) command(dir string, args ...string) Command {
	return Command{
		Args: append([]string{"kopia", "--config-file=" + filepath.Join(dir, "kopia.config"), "--no-progress", "--log-dir=" + filepath.Join(dir, "logs")}, args...),
		Dir:  filepath.Join(dir, workDir),
		Env:  []string{"KOPIA_PASSWORD=bench", "KOPIA_CHECK_FOR_UPDATES=false", "KOPIA_CACHE_DIRECTORY=" + filepath.Join(dir, "cache")},
	}
}

func (k kopia) setUp(dir string) []Command {
	return []Command{
		{Args: []string{"mkdir", "-p", repo(dir)}},
		k.command(dir, "repository", "create", "filesystem", "--path", repo(dir)),
		k.command(dir, "policy", "set", "--global", "--compression", k.compression),
	}
}

func (k kopia) save(dir, _ string, f File) Command {
	return k.command(dir, "snapshot", "create", filepath.Join(dir, workDir), "--tags", "step:"+step(f))
}

func (k kopia) restore(dir, to string, _ File) (Command, string) {
	return k.command(dir, "snapshot", "restore", filepath.Join(dir, workDir), to, "--snapshot-time", "latest"), filepath.Join(to, constantName)
}

// rclone copies.
type rclone struct{}

func (rclone) setUp(dir string) []Command {
	return []Command{{Args: []string{"mkdir", "-p", repo(dir)}}}
}

func (rclone) save(dir, constant string, f File) Command {
	return Command{Args: []string{"rclone", "--config", "/dev/null", "--ignore-times", "copyto", constant, filepath.Join(repo(dir), step(f))}}
}

func (rclone) restore(dir, to string, f File) (Command, string) {
	out := filepath.Join(to, constantName)
	return Command{Args: []string{"rclone", "--config", "/dev/null", "--ignore-times", "copyto", filepath.Join(repo(dir), step(f)), out}}, out
}

// zstd compresses each checkpoint alone.
type zstd struct{ level int }

func (zstd) setUp(dir string) []Command { return []Command{{Args: []string{"mkdir", "-p", repo(dir)}}} }

func (z zstd) save(dir, constant string, f File) Command {
	return Command{Args: []string{"zstd", "-q", "-f", "-" + strconv.Itoa(z.level), "-o", filepath.Join(repo(dir), step(f)), constant}}
}

func (z zstd) restore(dir, to string, f File) (Command, string) {
	out := filepath.Join(to, constantName)
	return Command{Args: []string{"zstd", "-q", "-f", "-d", "-o", out, filepath.Join(repo(dir), step(f))}}, out
}

func step(f File) string { return strconv.FormatInt(f.Step, 10) }

// efforts are the settings of ours that the goals ask for.
var efforts = []string{"fast", "auto", "small"}

// ours returns our contenders, as far as the flags in help, what `checkpointer save --help` prints, allow them, and a note
// for each that is left out.
func ours(binary, help string) (out []Contender, notes []string) {
	flags := flagNames(help)
	if slices.Contains(flags, "effort") {
		for _, e := range efforts {
			out = append(out, Contender{Name: "checkpointer " + e, Ours: true, Effort: e, Exact: true, tool: spotter{binary, []string{"--effort", e}}})
		}
	} else {
		out = append(out, Contender{Name: "checkpointer", Ours: true, Exact: true, tool: spotter{binary, nil}})
		notes = append(notes, "checkpointer save has no --effort: its one setting is measured")
	}
	if slices.Contains(flags, "precision") {
		out = append(out, Contender{Name: "checkpointer compact", Ours: true, tool: spotter{binary, []string{"--precision", "compact"}}})
	} else {
		notes = append(notes, "checkpointer save has no --precision: compact is not measured")
	}
	return out, notes
}

// flagNames are the long flags in a help text, without their dashes.
func flagNames(help string) []string {
	var out []string
	for _, line := range strings.Split(help, "\n") {
		for _, w := range strings.Fields(line)[:min(2, len(strings.Fields(line)))] {
			if name, ok := strings.CutPrefix(w, "--"); ok {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

// hasCommand tells whether a help text lists a command of this name.
func hasCommand(help, name string) bool {
	_, commands, _ := strings.Cut(help, "Commands:")
	for line := range strings.Lines(commands) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == name {
			return true
		}
	}
	return false
}

// peers are the other tools that are installed, and a note for each that is not.
func peers(ctx context.Context) (out []Contender, notes []string) {
	for _, p := range []struct {
		version []string
		all     []Contender
	}{
		{[]string{"restic", "version"}, []Contender{{Name: "restic auto", Exact: true, tool: restic{"auto"}}}},
		{[]string{"borg", "--version"}, []Contender{{Name: "borg zstd,3", Exact: true, tool: borg{"zstd,3"}}}},
		{[]string{"kopia", "--version"}, []Contender{{Name: "kopia zstd-fastest", Exact: true, tool: kopia{"zstd-fastest"}}}},
		{[]string{"rclone", "version"}, []Contender{{Name: "rclone copy", Exact: true, tool: rclone{}}}},
		{[]string{"zstd", "--version"}, []Contender{
			{Name: "zstd -1", Exact: true, tool: zstd{1}}, {Name: "zstd -3", Exact: true, tool: zstd{3}},
		}},
	} {
		text, _, err := measure(ctx, Command{Args: p.version})
		if errors.Is(err, exec.ErrNotFound) {
			notes = append(notes, p.version[0]+" is not installed: absent")
			continue
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s does not run: absent: %v", p.version[0], err))
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		notes = append(notes, "peer: "+strings.Trim(first, "* "))
		out = append(out, p.all...)
	}
	return out, notes
}

// newRepo makes the empty folders of a contender and its repository.
func newRepo(ctx context.Context, c Contender, dir string) error {
	for _, d := range []string{dir, filepath.Join(dir, workDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("set up %s: %w", c.Name, err)
		}
	}
	for _, cmd := range c.tool.setUp(dir) {
		if _, _, err := measure(ctx, cmd); err != nil {
			return fmt.Errorf("set up %s: %w", c.Name, err)
		}
	}
	return nil
}
