package repository_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/quant"
	"nomad-spotter/checkpointer/repository"
)

// python runs testdata/compact.py; without PyTorch the test is skipped.
func python(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// Debian's python3-torch belongs to this interpreter.
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", append([]string{"testdata/compact.py"}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if errors.Is(err, os.ErrNotExist) || errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip("no PyTorch here")
	}
	must.NoError(t, err, must.Sprint(string(out)))
	return strings.TrimSpace(string(out))
}

// What PyTorch saved comes back from a compact snapshot as a file whose checksums are right and which PyTorch loads: weights
// and all else to the last bit, moments within their bounds.
func TestCompact_Torch(t *testing.T) {
	dir := t.TempDir()
	python(t, "make", dir)
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	w.Options.Precision = repository.Compact
	w.Options.Local = func(string) repository.Source { // of the first; its checksums are not those of the snapshot
		return scan(t, filepath.Join(dir, "ckpt_1.pt"))
	}
	bounds := []string{fmt.Sprint(quant.Momentum.Bound()), fmt.Sprint(quant.Variance.Bound())}
	for step := range 2 {
		name := fmt.Sprintf("ckpt_%d.pt", step+1)
		p := publish(t, w, int64(step+1), scan(t, filepath.Join(dir, name)))
		must.Less(t, p.RawBytes*45/100, p.StoredBytes)
		out := t.TempDir()
		m, _, err := r.Newest(t.Context(), "l", into(out))
		must.NoError(t, err)
		must.EqOp(t, repository.Compact, m.Precision)
		changed, err := strconv.Atoi(python(t, append([]string{"check", filepath.Join(dir, name), filepath.Join(out, name)}, bounds...)...))
		must.NoError(t, err)
		must.Greater(t, 200_000, changed) // most of 2 * 201,400
	}
	rep, err := r.Verify(t.Context(), "l", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
}
