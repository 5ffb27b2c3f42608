package containerd

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/shoenig/test/must"
)

// An archive is named by all of it. One that starts with another's index, and has a second one that its reader would
// take, does not get the other's name.
func TestNameArchive(t *testing.T) {
	archive := func(indexes ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, text := range indexes {
			must.NoError(t, w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(text))}))
			_, err := w.Write([]byte(text))
			must.NoError(t, err)
		}
		must.NoError(t, w.Close())
		return b.Bytes()
	}
	name := func(b []byte) string {
		n, err := nameArchive(bytes.NewReader(b))
		must.NoError(t, err)
		return n
	}
	theirs := archive(`{"manifests":[1]}`)
	must.Eq(t, name(theirs), name(theirs))
	must.StrHasPrefix(t, archiveName, name(theirs))
	must.NotEq(t, name(theirs), name(archive(`{"manifests":[1]}`, `{"manifests":[2]}`)))
}
