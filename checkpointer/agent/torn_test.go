package agent_test

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// archive is a zip as torch.save makes it: entries one after the other, the directory at the end.
func archive(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range []string{"ckpt/data.pkl", "ckpt/data/0"} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		must.NoError(t, err)
		_, err = f.Write([]byte(strings.Repeat(name, 1000)))
		must.NoError(t, err)
	}
	must.NoError(t, w.Close())
	return b.String()
}

// A file whose format says that it was cut short is no checkpoint: not while the task lives, however long nobody writes to
// it, not when the task says that it is one, and not after the task was killed or ended well. Once it is complete, it is.
func TestAgent_TornFiles(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	task := a.shell("sleep 60")
	inPlace := func(name, content string) {
		must.NoError(t, os.WriteFile(filepath.Join(a.conf.CheckpointDir, name), []byte(content), 0o600))
	}
	whole, zipped := weights(1), archive(t)
	inPlace("a-30.safetensors", whole[:len(whole)-1])
	inPlace("b-31.pt", zipped[:len(zipped)-1])
	inPlace("c-20.safetensors", whole) // finished later than the others, and looked at after them
	a.durable(20)
	_, err := a.task.Finished(context.Background(), 30, "a-30.safetensors", 0)
	must.ErrorContains(t, err, "incomplete")
	s, err := a.ctl.Status(context.Background(), 0, 0)
	must.NoError(t, err)
	must.EqOp(t, 20, s.Last.Step)

	inPlace("a-30.safetensors", whole)
	a.durable(30)

	inPlace("a-40.safetensors", whole[:len(whole)/2])
	must.NoError(t, syscall.Kill(-task.Process.Pid, syscall.SIGKILL))
	for _, clean := range []bool{false, true} {
		o, err := a.ctl.Finish(context.Background(), time.Now().Add(10*time.Second), clean)
		must.NoError(t, err)
		must.True(t, o.Done && o.Durable, must.Sprintf("%+v", o))
	}
	must.Positive(t, len(a.events(api.EventWarning)))
	step, content := read(t, st, a.conf.Lineage)
	must.EqOp(t, 30, step)
	must.True(t, content == whole)
	a.exits(10 * time.Second)
}
