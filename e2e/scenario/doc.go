// Package scenario holds the end-to-end stories, one file each: a training job on real Nomad, Consul, containerd and
// nomad-autoscaler, and something that happens to it. They are behind the build tag e2e and need root; `make e2e` runs
// them. All share one cluster; a story takes some of its nodes for itself, so that stories run beside each other without
// taking each other's nodes away.
package scenario
