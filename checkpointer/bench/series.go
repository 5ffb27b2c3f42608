package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Series is a sequence of checkpoint files, one for each step of one training.
type Series struct {
	Name  string
	Files []File // by step
}

// File is one checkpoint.
type File struct {
	Path  string
	Step  int64
	Bytes int64
}

// RawBytes is the size of all checkpoints together.
func (s Series) RawBytes() int64 {
	var n int64
	for _, f := range s.Files {
		n += f.Bytes
	}
	return n
}

// weightsOnly marks the series of the safetensors files beside the full checkpoints: "ftbf16.weights".
const weightsOnly = ".weights"

// defaultSeries are the series that the goals need, quick ones first.
var defaultSeries = []string{
	"small", "frozen", "frozen-constant", "ftbf16" + weightsOnly, "rlbf16" + weightsOnly, "bf16" + weightsOnly,
	"fp32", "bf16", "ft", "rl", "ftbf16", "rlbf16",
}

// splitName returns the folder of a series and the prefix and extension of its files.
func splitName(name string) (folder, prefix, ext string) {
	if f, ok := strings.CutSuffix(name, weightsOnly); ok {
		return f, "model_", ".safetensors"
	}
	return name, "ckpt_", ".pt"
}

// stepOf returns the step in a file's name, and whether it has the form PREFIX, digits, EXT.
func stepOf(base, prefix, ext string) (int64, bool) {
	s, ok := strings.CutPrefix(base, prefix)
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, ext)
	if !ok || s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// loadSeries lists the series called name below dir. label is what the tables call it.
func loadSeries(dir, name, label string) (Series, error) {
	folder, prefix, ext := splitName(name)
	path := filepath.Join(dir, folder)
	entries, err := os.ReadDir(path)
	if err != nil {
		return Series{}, fmt.Errorf("list series %s: %w", name, err)
	}
	s := Series{Name: label}
	for _, e := range entries {
		step, ok := stepOf(e.Name(), prefix, ext)
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return Series{}, fmt.Errorf("list series %s: %w", name, err)
		}
		s.Files = append(s.Files, File{filepath.Join(path, e.Name()), step, info.Size()})
	}
	if len(s.Files) == 0 {
		return Series{}, fmt.Errorf("series %s: no %sNUMBER%s in %s", name, prefix, ext, path)
	}
	slices.SortFunc(s.Files, func(a, b File) int { return cmp.Compare(a.Step, b.Step) })
	return s, nil
}

// missingKinds are the folders that the named series need and dir lacks, each once.
func missingKinds(dir string, names []string) []string {
	var out []string
	for _, n := range names {
		folder, _, _ := splitName(n)
		if _, err := os.Stat(filepath.Join(dir, folder)); err != nil && !slices.Contains(out, folder) {
			out = append(out, folder)
		}
	}
	return out
}

// makeSeries trains the missing series into dir with script.
func makeSeries(ctx context.Context, python, script, dir string, kinds []string, log io.Writer) error {
	if len(kinds) == 0 {
		return nil
	}
	if _, err := os.Stat(script); err != nil {
		return fmt.Errorf("make series: %w (run this at the top of the repository, or give --script)", err)
	}
	if err := exec.CommandContext(ctx, python, "-c", "import torch").Run(); err != nil {
		return fmt.Errorf("make series: %s has no PyTorch (Debian: apt install python3-torch), which %s needs: %w",
			python, strings.Join(kinds, ", "), err)
	}
	fmt.Fprintf(log, "training the series %s into %s: some minutes\n", strings.Join(kinds, ", "), dir)
	cmd := exec.CommandContext(ctx, python, script, "--out", dir, "--kinds", strings.Join(kinds, ","))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make series: %w", err)
	}
	return nil
}

// cacheDir is where the series are kept: below $XDG_CACHE_HOME, or ~/.cache.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.Join(errors.New("no folder for the series: give --series-dir"), err)
	}
	return filepath.Join(dir, "spotter", "series"), nil
}
