package driverharness

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// programs of the host that Nomad's conformance tests run in the container.
var programs = []string{"sh", "stty", "head", "mktemp", "cat", "sleep", "echo", "true", "kill"}

// writeImage makes an OCI archive whose root file system holds the host's shell, the programs above and the libraries
// they are linked with (OCI image specification, image layout: one layer, one configuration, one manifest).
func writeImage(t *testing.T, path string) {
	t.Helper()
	layer := rootfs(t)
	config := marshal(t, map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/usr/bin:/bin"}, "Cmd": []string{"/bin/sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	descriptor := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(b), "size": len(b)}
	}
	manifest := marshal(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("config.v1+json", config), "layers": []any{descriptor("layer.v1.tar", layer)},
	})
	index := marshal(t, map[string]any{"schemaVersion": 2, "manifests": []any{descriptor("manifest.v1+json", manifest)}})

	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add(t, w, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	add(t, w, "index.json", index, 0o644)
	for _, b := range [][]byte{config, manifest, layer} {
		add(t, w, "blobs/sha256/"+strings.TrimPrefix(digest(b), "sha256:"), b, 0o644)
	}
	must.NoError(t, w.Close())
	must.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
}

func rootfs(t *testing.T) []byte {
	t.Helper()
	files := map[string]string{} // path in the image to path on the host
	library := regexp.MustCompile(`(/[^ ]+\.so[^ ]*) \(`)
	for _, name := range programs {
		host, err := exec.LookPath(name)
		must.NoError(t, err)
		files["bin/"+name] = host
		out, err := exec.Command("ldd", host).Output()
		must.NoError(t, err)
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			files[strings.TrimPrefix(m[1], "/")] = m[1]
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		must.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o777}))
	}
	for name, host := range files {
		real, err := filepath.EvalSymlinks(host)
		must.NoError(t, err)
		b, err := os.ReadFile(real)
		must.NoError(t, err)
		add(t, w, name, b, 0o755)
	}
	must.NoError(t, w.Close())
	return out.Bytes()
}

func add(t *testing.T, w *tar.Writer, name string, b []byte, mode int64) {
	t.Helper()
	must.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(b))}))
	_, err := w.Write(b)
	must.NoError(t, err)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must.NoError(t, err)
	return b
}
