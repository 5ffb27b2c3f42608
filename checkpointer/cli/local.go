package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// remembered says where the files of the last snapshot that was saved from this machine were. The next save is coded
// against them, if they are still there and unchanged, instead of being read from the store again. Nothing depends on it:
// the repository compares what it reads with the snapshot's sums.
type remembered struct {
	Snapshot string       `json:"snapshot"`
	Path     string       `json:"path"`
	Stats    []stage.Stat `json:"stats"`
}

// memoryFile is the file for a lineage in a store, "" if this user has no cache directory.
func memoryFile(url, lineage string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "spotter", "saved", fmt.Sprintf("%x.json", sha256.Sum256([]byte(url+"\n"+lineage))))
}

// remember notes where a snapshot's files are.
func remember(url, lineage, snapshot, path string, tree *stage.Tree) error {
	file := memoryFile(url, lineage)
	if file == "" {
		return nil
	}
	b, err := json.Marshal(remembered{snapshot, path, tree.Stats()})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return stage.WriteFile(file, b)
}

// recall returns the files of a snapshot if they are where they were; else nil.
func recall(url, lineage, snapshot string) repository.Source {
	b, err := os.ReadFile(memoryFile(url, lineage))
	if err != nil {
		return nil
	}
	var r remembered
	if json.Unmarshal(b, &r) != nil || r.Snapshot != snapshot || !filepath.IsAbs(r.Path) {
		return nil
	}
	tree, err := stage.Scan(filepath.Dir(r.Path), filepath.Base(r.Path))
	if err != nil || !slices.Equal(tree.Stats(), r.Stats) {
		return nil
	}
	return tree
}
