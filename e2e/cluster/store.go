package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
)

// Snapshot is one checkpoint in the store, as `checkpointer list --json` prints it.
type Snapshot struct {
	Lineage  string `json:"lineage"`
	Snapshot string `json:"snapshot"`
	Epoch    uint64 `json:"epoch"`
	Step     int64  `json:"step"`
	RawBytes int64  `json:"raw_bytes"`
}

// Snapshots lists what the cluster's store holds.
func (c *Cluster) Snapshots(ctx context.Context) ([]Snapshot, error) {
	out, err := c.tool(ctx, c.Bin.Checkpointer, "list", "--store", c.StoreURL, "--json")
	if err != nil {
		return nil, err
	}
	var list []Snapshot
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("decode list of snapshots: %w", err)
	}
	return list, nil
}

// StoredBytes is the size of all files of the cluster's store.
func (c *Cluster) StoredBytes() (int64, error) {
	u, err := url.Parse(c.StoreURL)
	if err != nil {
		return 0, err
	}
	var n int64
	err = filepath.WalkDir(u.Path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
