package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is an image that is unpacked and ready to run.
type Image struct {
	Name   string
	Digest string
	Config ocispec.ImageConfig

	image client.Image
}

// archiveName starts the names of images that came from an archive. No registry can have this host.
const archiveName = "archive.spotter.invalid/"

// Import brings an OCI or Docker archive into containerd and unpacks it. The same archive is imported once, whatever its
// path. Names that the archive gives itself are ignored, so that no job can put its own image under another's name.
func (c *Client) Import(ctx context.Context, f *os.File) (*Image, error) {
	name, err := nameArchive(f)
	if err != nil {
		return nil, err
	}
	c.imports.Lock()
	defer c.imports.Unlock()
	if img, err := c.c.GetImage(ctx, name); err == nil {
		if ready, err := c.ready(ctx, img); err == nil {
			return ready, nil
		}
		c.log.Warn("image of an archive is incomplete, importing it again", "image", name)
	}
	ctx, done, err := c.c.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a lease: %w", err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("rewind archive: %w", err)
	}
	store := c.c.ContentStore()
	sum := sha256.New()
	tee := io.TeeReader(f, sum)
	index, err := archive.ImportIndex(ctx, store, tee)
	if err != nil {
		return nil, fmt.Errorf("read archive %s: %w; is it an OCI or Docker image archive?", f.Name(), err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return nil, fmt.Errorf("read archive %s: %w", f.Name(), err)
	}
	if nameOf(sum) != name {
		return nil, fmt.Errorf("archive %s changed while it was read", f.Name())
	}
	handler := images.FilterPlatforms(images.ChildrenHandler(store), platforms.Default())
	if err := images.WalkNotEmpty(ctx, images.SetChildrenLabels(store, handler), index); err != nil {
		return nil, fmt.Errorf("archive %s holds no image for %s: %w", f.Name(), platforms.DefaultString(), err)
	}
	record := images.Image{Name: name, Target: index}
	saved, err := c.c.ImageService().Create(ctx, record)
	if errdefs.IsAlreadyExists(err) {
		saved, err = c.c.ImageService().Update(ctx, record, "target")
	}
	if err != nil {
		return nil, fmt.Errorf("record image %s: %w", name, err)
	}
	return c.ready(ctx, client.NewImage(c.c, saved))
}

// nameArchive names an archive by all its bytes. An index inside would not do: an archive may hold two, of which only the
// reader decides which counts.
func nameArchive(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", fmt.Errorf("read archive: %w", err)
	}
	return nameOf(sum), nil
}

func nameOf(sum hash.Hash) string { return archiveName + "image:" + hex.EncodeToString(sum.Sum(nil)) }

// ready unpacks the image if need be and reads its configuration.
func (c *Client) ready(ctx context.Context, img client.Image) (*Image, error) {
	unpacked, err := img.IsUnpacked(ctx, c.opts.Snapshotter)
	if err != nil {
		return nil, fmt.Errorf("look for the unpacked image %s: %w", img.Name(), err)
	}
	if !unpacked {
		if err := img.Unpack(ctx, c.opts.Snapshotter); err != nil {
			return nil, fmt.Errorf("unpack image %s: %w", img.Name(), err)
		}
	}
	spec, err := img.Spec(ctx)
	if err != nil {
		return nil, fmt.Errorf("read configuration of image %s: %w", img.Name(), err)
	}
	return &Image{Name: img.Name(), Digest: img.Target().Digest.String(), Config: spec.Config, image: img}, nil
}

// OpenInside opens a file below one of the given roots and refuses any path that leaves it, by ".." or by a link.
func OpenInside(root, name string) (*os.File, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer r.Close()
	f, err := r.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", name, root, err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("open %s in %s: not a regular file", name, root)
	}
	return f, nil
}
