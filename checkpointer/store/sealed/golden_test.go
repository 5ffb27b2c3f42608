package sealed

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
)

var update = flag.Bool("update", false, "write testdata anew")

const golden = "testdata/encryption-1"

// goldenObjects are what the golden repository holds.
var goldenObjects = map[string][]byte{
	"lineages/train/@seen/00000001-none": {},
	"spotter-repository.json":            []byte(`{"format":1}`),
	"objects/00/large":                   random(first + 100),
}

// TestGolden opens a repository that encryption 1 left in the tree, with each of its keys. It must be readable for as long
// as the format is. It holds random keys and salts, so today's writer does not write the same again.
//
//	go test ./checkpointer/store/sealed -run TestGolden -update
func TestGolden(t *testing.T) {
	pass, err := ParseKey([]byte("correct horse battery staple"))
	must.NoError(t, err)
	pass.work = 8 // quick to try; its slot says so
	raw, err := ParseKey(random(rawKeySize))
	must.NoError(t, err)
	if *update {
		dir := filepath.Join(t.TempDir(), "store")
		below, err := store.OpenFile(dir, store.OS{}, true)
		must.NoError(t, err)
		s, err := Create(t.Context(), below, raw)
		must.NoError(t, err)
		for key, content := range goldenObjects {
			put(t, s, key, content)
		}
		_, err = AddSlot(t.Context(), below, raw, pass, "in the safe")
		must.NoError(t, err)
		gone, err := AddSlot(t.Context(), below, raw, user(t, 1), "")
		must.NoError(t, err)
		must.NoError(t, RemoveSlot(t.Context(), below, raw, gone.ID))
		must.NoError(t, os.Remove(filepath.Join(dir, "tmp")))
		must.NoError(t, os.RemoveAll(golden))
		must.NoError(t, os.CopyFS(golden, os.DirFS(dir)))
	}
	abs, err := filepath.Abs(golden)
	must.NoError(t, err)
	below, err := store.OpenFile(abs, store.OS{}, false)
	must.NoError(t, err)
	for _, k := range []Key{pass, raw} {
		s, err := Open(t.Context(), below, &k)
		must.NoError(t, err)
		list, err := s.List(t.Context(), "")
		must.NoError(t, err)
		must.Len(t, len(goldenObjects), list)
		for _, e := range list {
			got, err := get(s, e.Key)
			must.NoError(t, err)
			must.True(t, bytes.Equal(goldenObjects[e.Key], got))
			must.Eq(t, int64(len(got)), e.Size)
		}
	}
	slots, err := Slots(t.Context(), below)
	must.NoError(t, err)
	must.Len(t, 2, slots)
}
