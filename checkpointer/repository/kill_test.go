package repository_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// publisherEnv makes the test binary a publisher into the store of that directory.
const publisherEnv = "SPOTTER_TEST_PUBLISHER"

// killed is the checkpoint of a step: partly content of other steps, partly its own.
func killed(step int64) memory {
	return memory{"ckpt", map[string]string{
		"own":    strings.Repeat(fmt.Sprintf("step %d ", step), 20_000),
		"shared": strings.Repeat(fmt.Sprintf("epoch %d ", step/4), 20_000),
		"empty":  "",
	}}
}

// publisher publishes until it is killed, and prints each step once it is durable.
func publisher(dir string) int {
	err := func() error {
		ctx := context.Background()
		s, err := store.Open("file://"+dir, true)
		if err != nil {
			return err
		}
		r, err := repository.Open(ctx, s, true)
		if err != nil {
			return err
		}
		list, err := r.Snapshots(ctx, "l")
		if err != nil {
			return err
		}
		step := int64(0)
		if len(list) > 0 {
			step = list[0].Step
		}
		w, err := r.Claim(ctx, "l", "child", time.Now())
		if err != nil {
			return err
		}
		for {
			step++
			p, err := w.Publish(ctx, step, killed(step), time.Now())
			if err != nil {
				return err
			}
			fmt.Printf("durable %d %s\n", step, p.ID)
		}
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestKill kills publishers with SIGKILL at random moments, on the real file system. All that they reported is there
// afterwards, the next one goes on where the last was, and nothing is damaged.
func TestKill(t *testing.T) {
	const rounds = 12
	dir := filepath.Join(t.TempDir(), "store")
	reported := map[string]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), publisherEnv+"="+dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		must.NoError(t, err)
		must.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		// The first rounds die while the repository is being made; the others after some work.
		kill := func() { _ = cmd.Process.Kill() } // it may have ended
		timer := time.AfterFunc(time.Duration(random.IntN(150*(1+round)))*time.Millisecond, kill)
		for lines.Scan() {
			var step int64
			var id string
			_, err := fmt.Sscanf(lines.Text(), "durable %d %s", &step, &id)
			must.NoError(t, err)
			reported[id] = step
		}
		err = cmd.Wait()
		timer.Stop()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		must.True(t, ok)
		must.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, must.Sprintf("publisher ended by itself: %v %s", err, stderr.String()))
	}
	must.MapNotEmpty(t, reported)
	r := reopen(t, dir)
	rep, err := r.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	for _, s := range list {
		if _, ok := reported[s.ID]; !ok {
			continue
		}
		must.EqOp(t, reported[s.ID], s.Step)
		delete(reported, s.ID)
		target := t.TempDir()
		_, err := r.Restore(t.Context(), s, into(target))
		must.NoError(t, err)
		for path, content := range killed(s.Step).files {
			b, err := os.ReadFile(filepath.Join(target, "ckpt", path))
			must.NoError(t, err)
			must.True(t, string(b) == content, must.Sprintf("step %d: %s differs", s.Step, path))
		}
	}
	must.MapEmpty(t, reported, must.Sprint("durable snapshots are gone"))
}
