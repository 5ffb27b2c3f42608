// Package image builds container images out of static binaries, where no registry can be reached: an OCI layout in a tar
// archive, as `driver = "spotter"` takes it with `image = "oci-archive:…"`. Equal binaries give equal archives.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of every file, so that archives are reproducible.
var epoch = time.Unix(0, 0).UTC()

// WriteArchive writes an image of which the file binary is all, at /name and as its entrypoint, to the archive at path.
func WriteArchive(binary, name, path string) error {
	img, err := build(binary, name)
	if err != nil {
		return fmt.Errorf("build image of %s: %w", binary, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	ref := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name + ":latest"})
	if err := l.AppendImage(img, ref); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return pack(dir, path)
}

// build returns the image.
func build(binary, name string) (v1.Image, error) {
	root, err := rootFS(binary, name)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(root)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created = "linux", runtime.GOARCH, v1.Time{Time: epoch}
	cfg.Config.Entrypoint = []string{"/" + name}
	cfg.Config.Env = []string{"PATH=/"}
	return mutate.ConfigFile(img, cfg)
}

// rootFS is the layer: the binary, and a /tmp that every user may write to.
func rootFS(binary, name string) ([]byte, error) {
	prog, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	entries := []tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777, ModTime: epoch},
		{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(prog)), ModTime: epoch},
	}
	for i := range entries {
		if err := w.WriteHeader(&entries[i]); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(prog); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// pack writes the folder dir as an archive, under a temporary name first.
func pack(dir, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".archive-")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name()) // what is left of a failure
		}
	}()
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Name: rel + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: epoch})
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: rel, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(b)), ModTime: epoch}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	return errors.Join(err, w.Close())
}
