package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// TryShipped runs the policies and the local pool that are shipped in the folder jobs, in a nomad-autoscaler of their
// own beside the cluster's, until the pool's desired count is what the policy wants and so many instances live. Only
// paths, addresses and the pool's name are changed, and an instance's programs do nothing.
func (c *Cluster) TryShipped(ctx context.Context, jobs string, want int) (err error) {
	dir := filepath.Join(c.Dir, "shipped")
	state := filepath.Join(c.Dir, "q") // short, as are the names of instances' sockets
	for _, d := range []string{filepath.Join(dir, "policies"), state} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	port, err := c.ports.free(ctx)
	if err != nil {
		return err
	}
	pool := filepath.Join(dir, "pool.hcl")
	copies := []struct {
		from, to string
		replace  []string // pairs
	}{
		{"policies/training.hcl", filepath.Join(dir, "policies", "training.hcl"), []string{
			`pool = "training"`, `pool = "shipped"`, `cooldown            = "30s"`, `cooldown = "1s"`,
			`evaluation_interval = "10s"`, `evaluation_interval = "1s"`,
		}},
		{"pools/local.hcl", pool, []string{
			`pool "training"`, `pool "shipped"`, "http://127.0.0.1:8500", c.ConsulAddress(),
			`"/var/lib/spotter/pool"`, fmt.Sprintf("%q", state), "/etc/spotter/", filepath.Join(jobs, "pools") + "/",
			`["/usr/bin/containerd", "--config", "{{.Dir}}/containerd.toml"]`, `["/bin/sh", "-c", "touch {{.Dir}}/containerd.sock; exec sleep 3600"]`,
			`["/usr/bin/nomad", "agent", "-config", "{{.Dir}}/client.hcl"]`, `["/bin/sleep", "3600"]`,
		}},
	}
	for _, f := range copies {
		b, err := os.ReadFile(filepath.Join(jobs, f.from))
		if err != nil {
			return err
		}
		text := string(b)
		for i := 0; i < len(f.replace); i += 2 {
			if !strings.Contains(text, f.replace[i]) {
				return fmt.Errorf("%s does not hold %s any more", f.from, f.replace[i])
			}
			text = strings.ReplaceAll(text, f.replace[i], f.replace[i+1])
		}
		if err := os.WriteFile(f.to, []byte(text), 0o600); err != nil {
			return err
		}
	}
	agent, err := os.ReadFile(filepath.Join(c.Dir, "autoscaler.hcl"))
	if err != nil {
		return err
	}
	text := strings.NewReplacer(
		fmt.Sprintf("= %d", c.values.AutoscalerHTTP), fmt.Sprintf("= %d", port),
		filepath.Join(c.Dir, "policies"), filepath.Join(dir, "policies"), c.PoolFile(), pool,
	).Replace(string(agent))
	config := filepath.Join(dir, "autoscaler.hcl")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	p, err := c.start("shipped-autoscaler", c.Bin.Autoscaler, "agent", "-config", config)
	if err != nil {
		return err
	}
	defer func() {
		p.stop()
		all, listErr := instances(filepath.Join(state, "i"))
		for _, i := range all {
			if i.State != Gone {
				_ = c.reclaim(ctx, i, 0) // the cluster's stop finds what is left
			}
		}
		if err == nil {
			err = listErr
		}
	}()
	var have string
	err = p.ready(ctx, func(ctx context.Context) error {
		out, err := c.tool(ctx, c.Bin.AutoscalerPlugin, "status", "--pool", pool, "--json")
		if err != nil {
			return err
		}
		var st PoolStatus
		if err := json.Unmarshal(out, &st); err != nil {
			return err
		}
		living := 0
		for _, i := range st.Instances {
			if i.State == Running {
				living++
			}
		}
		have = fmt.Sprintf("desired count %d, %d instances live", st.Desired, living)
		if st.Desired != want || living != want {
			return fmt.Errorf("%s; want %d", have, want)
		}
		return nil
	})
	return err
}
