package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/shoenig/test/must"
)

func TestWriteArchive(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "program")
	must.NoError(t, os.WriteFile(binary, []byte("#!/bin/true\n"), 0o755))
	first, second := filepath.Join(dir, "a.tar"), filepath.Join(dir, "b.tar")
	must.NoError(t, WriteArchive(binary, "program", first))
	must.NoError(t, WriteArchive(binary, "program", second))

	a, err := os.ReadFile(first)
	must.NoError(t, err)
	b, err := os.ReadFile(second)
	must.NoError(t, err)
	must.Eq(t, a, b, must.Sprint("equal binaries give equal archives"))

	out := filepath.Join(dir, "layout")
	unpack(t, first, out)
	l, err := layout.FromPath(out)
	must.NoError(t, err)
	index, err := l.ImageIndex()
	must.NoError(t, err)
	manifest, err := index.IndexManifest()
	must.NoError(t, err)
	must.Len(t, 1, manifest.Manifests)
	img, err := index.Image(manifest.Manifests[0].Digest)
	must.NoError(t, err)
	must.NoError(t, validate.Image(img))
	cfg, err := img.ConfigFile()
	must.NoError(t, err)
	must.Eq(t, []string{"/program"}, cfg.Config.Entrypoint)
	must.MapContainsKeys(t, files(t, img), []string{"program", "tmp"})

	raw, err := os.ReadFile(filepath.Join(out, "oci-layout"))
	must.NoError(t, err)
	must.True(t, json.Valid(raw))
}

func TestWriteArchive_missing(t *testing.T) {
	dir := t.TempDir()
	must.ErrorContains(t, WriteArchive(filepath.Join(dir, "none"), "none", filepath.Join(dir, "x.tar")), "no such file")
	left, err := os.ReadDir(dir)
	must.NoError(t, err)
	must.Len(t, 0, left, must.Sprint("a failed run leaves nothing"))
}

func files(t *testing.T, img v1.Image) map[string]int64 {
	t.Helper()
	rc := mutate.Extract(img)
	defer rc.Close()
	out := map[string]int64{}
	for r := tar.NewReader(rc); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must.NoError(t, err)
		out[h.Name] = h.Size
	}
}

func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	must.NoError(t, err)
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.NoError(t, err)
		p := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			must.NoError(t, os.MkdirAll(p, 0o755))
			continue
		}
		must.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		b, err := io.ReadAll(r)
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(p, b, 0o644))
	}
}
