package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"
)

// driverName is the task driver, as jobs name it.
const driverName = "spotter"

// Instance is one instance of the pool, as the local provider records it.
type Instance struct {
	ID          string    `json:"id"`
	Offering    string    `json:"offering"`
	Kind        string    `json:"kind"`
	Region      string    `json:"region"`
	State       string    `json:"state"`
	LaunchedAt  time.Time `json:"launched_at"`
	NoticedAt   time.Time `json:"noticed_at"`
	Deadline    time.Time `json:"deadline"`
	EndedAt     time.Time `json:"ended_at"`
	Hours       float64   `json:"hours"`
	CostUSD     float64   `json:"cost_usd"`
	MetadataURL string    `json:"metadata_url"`
	Init        struct {
		PID int `json:"pid"`
	} `json:"init"` // first process of the instance's own namespaces
	Dir string `json:"-"`
}

// PoolStatus is what `nomad-autoscaler-spotter status --json` prints.
type PoolStatus struct {
	Pool            string             `json:"pool"`
	Desired         int                `json:"desired"`
	Instances       []Instance         `json:"instances"`
	NodeHours       map[string]float64 `json:"node_hours"`
	CostUSD         float64            `json:"cost_usd"`
	OnDemandCostUSD float64            `json:"ondemand_cost_usd"`
}

// States of an instance.
const (
	Running = "running"
	Noticed = "noticed"
	Gone    = "gone"
)

// PoolStatus asks the pool's own command.
func (c *Cluster) PoolStatus(ctx context.Context) (*PoolStatus, error) {
	out, err := c.tool(ctx, c.Bin.AutoscalerPlugin, "status", "--pool", c.PoolFile(), "--json")
	if err != nil {
		return nil, err
	}
	st := new(PoolStatus)
	if err := json.Unmarshal(out, st); err != nil {
		return nil, fmt.Errorf("decode pool status: %w", err)
	}
	return st, nil
}

// StartMarket lets the traces play.
func (c *Cluster) StartMarket(ctx context.Context) error {
	_, err := c.tool(ctx, c.Bin.AutoscalerPlugin, "market", "start", "--pool", c.PoolFile())
	return err
}

// tool runs one of our commands and returns its standard output.
func (c *Cluster) tool(ctx context.Context, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = c.environ()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(argv[0]), argv[1], err, bytes.TrimSpace(errOut.Bytes()))
	}
	return out.Bytes(), nil
}

// Instances reads the records of all instances, ended ones included.
func (c *Cluster) Instances() ([]Instance, error) { return instances(c.values.Instances) }

func instances(dir string) ([]Instance, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "instance.json"))
	if err != nil {
		return nil, err
	}
	var out []Instance
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		i := Instance{Dir: filepath.Dir(f)}
		if err := json.Unmarshal(b, &i); err != nil {
			return nil, fmt.Errorf("decode %s: %w", f, err)
		}
		out = append(out, i)
	}
	return out, nil
}

// Instance returns the record of one instance.
func (c *Cluster) Instance(id string) (Instance, error) {
	all, err := c.Instances()
	if err != nil {
		return Instance{}, err
	}
	for _, i := range all {
		if i.ID == id {
			return i, nil
		}
	}
	return Instance{}, fmt.Errorf("no instance %q", id)
}

// Reclaim takes an instance away after a notice, as the market would; with notice 0 it is killed without one.
func (c *Cluster) Reclaim(ctx context.Context, id string, notice time.Duration) error {
	i, err := c.Instance(id)
	if err != nil {
		return err
	}
	return c.reclaim(ctx, i, notice)
}

func (c *Cluster) reclaim(ctx context.Context, i Instance, notice time.Duration) error {
	body, err := json.Marshal(map[string]string{"notice": notice.String()})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.MetadataURL+"/spotter/v1/reclaim", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, _, err = c.do(req)
	return err
}

// NoticePoll asks an instance's metadata endpoint, by EC2's protocol, whether there is a notice, until there is one or
// ctx is done. It returns when that answer came.
func (c *Cluster) NoticePoll(ctx context.Context, i Instance, every time.Duration) (time.Time, error) {
	var seen time.Time
	var last error
	token := ""
	err := Poll(ctx, every, func() bool {
		if token == "" {
			if token, last = c.imdsToken(ctx, i); last != nil {
				return false
			}
		}
		status, err := c.get(ctx, i.MetadataURL+"/latest/meta-data/spot/instance-action", http.Header{"X-Aws-Ec2-Metadata-Token": {token}})
		switch {
		case err == nil:
			seen = time.Now()
			return true
		case status == http.StatusUnauthorized:
			token = ""
		case status != http.StatusNotFound:
			last = err
		}
		return false
	})
	return seen, errors.Join(err, last)
}

func (c *Cluster) imdsToken(ctx context.Context, i Instance) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, i.MetadataURL+"/latest/api/token", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
	b, _, err := c.do(req)
	return string(b), err
}

func (c *Cluster) get(ctx context.Context, url string, h http.Header) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if h != nil {
		req.Header = h
	}
	_, status, err = c.do(req)
	return status, err
}

func (c *Cluster) do(req *http.Request) ([]byte, int, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, bytes.TrimSpace(b))
	}
	return b, resp.StatusCode, err
}

// Node is a Nomad node whose driver is healthy.
type Node struct {
	ID, Name, Offering, Kind, Region string
}

// ReadyNodes lists the nodes that can take training jobs.
func (c *Cluster) ReadyNodes(ctx context.Context) ([]Node, error) {
	list, _, err := c.Nomad.Nodes().List((&nomadapi.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var out []Node
	for _, n := range list {
		d := n.Drivers[driverName]
		if n.Status != "ready" || n.SchedulingEligibility != "eligible" || d == nil || !d.Healthy {
			continue
		}
		info, err := c.Instance(n.Name)
		if err != nil {
			continue // not one of the pool
		}
		out = append(out, Node{ID: n.ID, Name: n.Name, Offering: info.Offering, Kind: info.Kind, Region: info.Region})
	}
	return out, nil
}

// WaitNodes waits until so many nodes can take training jobs.
func (c *Cluster) WaitNodes(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var have int
	var last error
	shown := -1
	err := Poll(ctx, 200*time.Millisecond, func() bool {
		var nodes []Node
		if nodes, last = c.ReadyNodes(ctx); last == nil {
			have = len(nodes)
		}
		if have != shown {
			shown = have
			c.progress("%d of %d nodes ready", have, n)
		}
		return have >= n || c.autoscaler.ended()
	})
	if err == nil && have < n {
		err = errors.New("nomad-autoscaler ended")
	}
	if err != nil {
		return fmt.Errorf("wait for nodes: %d of %d are ready: %w\n%s\n%s", have, n, errors.Join(err, last),
			Tail(c.autoscaler.log, 20), c.InstanceLogs(10))
	}
	return nil
}

// InstanceLogs returns the ends of all logs of some instances, or of all: their programs', and the agents'.
func (c *Cluster) InstanceLogs(lines int, ids ...string) string {
	all, err := c.Instances()
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for _, i := range all {
		if len(ids) > 0 && !slices.Contains(ids, i.ID) {
			continue
		}
		for _, pattern := range []string{"*.log", "spotter/t/*/*.log"} {
			files, _ := filepath.Glob(filepath.Join(i.Dir, pattern)) // the patterns are well-formed
			for _, f := range files {
				fmt.Fprintln(&b, Tail(f, lines))
			}
		}
	}
	return b.String()
}
