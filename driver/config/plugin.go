package config

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// Plugin is the checked configuration of the plugin.
type Plugin struct {
	Enabled         bool
	StateDir        string
	Containerd      Containerd
	AllowPrivileged bool
	AllowCaps       []string // upper case, without CAP_; "ALL" allows every one
	VolumesEnabled  bool     // tasks may mount any path of the host
	PullTimeout     time.Duration
	Checkpoint      PluginCheckpoint
	Cadence         Cadence
	Consul          Consul
	Nomad           Nomad
	Notice          Notice
	Evacuate        Evacuate
}

// Containerd says which containerd runs the containers, and how.
type Containerd struct {
	Address      string `codec:"address"`
	Namespace    string `codec:"namespace"`
	Snapshotter  string `codec:"snapshotter"`
	Runtime      string `codec:"runtime"`
	CgroupParent string `codec:"cgroup_parent"`
}

// PluginCheckpoint are the node's settings for checkpoints.
type PluginCheckpoint struct {
	Store          string        // URL; empty: found through Consul, else a directory below StateDir
	RestoreTimeout time.Duration // how long StartTask waits for a store
	FinishTimeout  time.Duration // how long an exit is held back for what is not durable yet
	LogLevel       string
	KeyFile        string // key of encrypted stores; empty: that in the client's environment, if any
}

// Consul says how stores are found. An empty Address means that Consul is not used.
type Consul struct {
	Address    string `codec:"address"`
	Token      string `codec:"token"`
	Service    string `codec:"service"`
	Datacenter string `codec:"datacenter"`
}

// Nomad says how to reach Nomad's API. An empty Address means that it is not used.
type Nomad struct {
	Address   string `codec:"address"`
	Token     string `codec:"token"`
	TokenFile string `codec:"token_file"`
	Region    string `codec:"region"`
	CAFile    string `codec:"ca_file"`
	CertFile  string `codec:"cert_file"`
	KeyFile   string `codec:"key_file"`
}

// Notice says where interruption notices come from.
type Notice struct {
	Source       string // "none" or "ec2"
	Endpoint     string
	PollInterval time.Duration
}

// Evacuate are the settings for leaving a node that is reclaimed or drained.
type Evacuate struct {
	Margin            time.Duration // containers are stopped this long before the deadline
	CheckpointTimeout time.Duration // budget of a checkpoint when there is no deadline
}

// defaultCgroupParent starts with /nomad, as the groups of Nomad's other drivers do.
const defaultCgroupParent = "/nomad-spotter"

// Sources of notices.
const (
	NoticeNone = "none"
	NoticeEC2  = "ec2"
)

// MaxStateDir is the longest state_dir in bytes: the sockets below it must fit into the 107 bytes that Linux has for a
// socket's path, and "/t/0123456789abcdef/s/task.sock" takes 31 of them.
const MaxStateDir = 107 - 31

// pluginBlock is the plugin block as Nomad decodes it.
type pluginBlock struct {
	Enabled         bool       `codec:"enabled"`
	StateDir        string     `codec:"state_dir"`
	Containerd      Containerd `codec:"containerd"`
	AllowPrivileged bool       `codec:"allow_privileged"`
	AllowCaps       []string   `codec:"allow_caps"`
	Volumes         struct {
		Enabled bool `codec:"enabled"`
	} `codec:"volumes"`
	PullTimeout string `codec:"pull_timeout"`
	Checkpoint  struct {
		Store          string `codec:"store"`
		RestoreTimeout string `codec:"restore_timeout"`
		FinishTimeout  string `codec:"finish_timeout"`
		LogLevel       string `codec:"log_level"`
		KeyFile        string `codec:"key_file"`
	} `codec:"checkpoint"`
	Cadence cadenceBlock `codec:"cadence"`
	Consul  Consul       `codec:"consul"`
	Nomad   Nomad        `codec:"nomad"`
	Notice  struct {
		Source       string `codec:"source"`
		Endpoint     string `codec:"endpoint"`
		PollInterval string `codec:"poll_interval"`
	} `codec:"notice"`
	Evacuate struct {
		Margin            string `codec:"margin"`
		CheckpointTimeout string `codec:"checkpoint_timeout"`
	} `codec:"evacuate"`
}

// PluginSchema is the schema of the plugin block. Defaults that are no literal of a block that may be absent are filled
// in by DecodePlugin.
func PluginSchema() *hclspec.Spec {
	text := func(name string) *hclspec.Spec { return hclspec.NewAttr(name, "string", false) }
	object := func(names ...string) *hclspec.Spec {
		m := map[string]*hclspec.Spec{}
		for _, n := range names {
			m[n] = text(n)
		}
		return hclspec.NewObject(m)
	}
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"enabled":          hclspec.NewDefault(hclspec.NewAttr("enabled", "bool", false), hclspec.NewLiteral("true")),
		"state_dir":        text("state_dir"),
		"containerd":       hclspec.NewBlock("containerd", false, object("address", "namespace", "snapshotter", "runtime", "cgroup_parent")),
		"allow_privileged": hclspec.NewAttr("allow_privileged", "bool", false),
		"allow_caps":       hclspec.NewAttr("allow_caps", "list(string)", false),
		"volumes": hclspec.NewBlock("volumes", false, hclspec.NewObject(map[string]*hclspec.Spec{
			"enabled": hclspec.NewAttr("enabled", "bool", false),
		})),
		"pull_timeout": text("pull_timeout"),
		"checkpoint":   hclspec.NewBlock("checkpoint", false, object("store", "restore_timeout", "finish_timeout", "log_level", "key_file")),
		"cadence":      hclspec.NewBlock("cadence", false, cadenceSchema()),
		"consul":       hclspec.NewBlock("consul", false, object("address", "token", "service", "datacenter")),
		"nomad":        hclspec.NewBlock("nomad", false, object("address", "token", "token_file", "region", "ca_file", "cert_file", "key_file")),
		"notice":       hclspec.NewBlock("notice", false, object("source", "endpoint", "poll_interval")),
		"evacuate":     hclspec.NewBlock("evacuate", false, object("margin", "checkpoint_timeout")),
	})
}

// DecodePlugin decodes, fills in the defaults and checks. The error names every fault.
func DecodePlugin(decode func(any) error) (*Plugin, error) {
	var b pluginBlock
	if err := decode(&b); err != nil {
		return nil, err
	}
	f := &faults{root: "config"}
	p := &Plugin{
		Enabled:         b.Enabled,
		StateDir:        path.Clean(fallback(b.StateDir, "/var/lib/nomad-spotter")),
		Containerd:      b.Containerd,
		AllowPrivileged: b.AllowPrivileged,
		AllowCaps:       capNames(b.AllowCaps),
		VolumesEnabled:  b.Volumes.Enabled,
		PullTimeout:     f.positive("pull_timeout", b.PullTimeout, 10*time.Minute),
		Checkpoint: PluginCheckpoint{
			Store:          b.Checkpoint.Store,
			RestoreTimeout: f.positive("checkpoint.restore_timeout", b.Checkpoint.RestoreTimeout, 2*time.Minute),
			FinishTimeout:  f.positive("checkpoint.finish_timeout", b.Checkpoint.FinishTimeout, 5*time.Minute),
			LogLevel:       fallback(b.Checkpoint.LogLevel, "info"),
			KeyFile:        b.Checkpoint.KeyFile,
		},
		Cadence: b.Cadence.cadence(f),
		Consul:  b.Consul,
		Nomad:   b.Nomad,
		Notice: Notice{
			Source:       fallback(b.Notice.Source, NoticeNone),
			Endpoint:     b.Notice.Endpoint,
			PollInterval: f.positive("notice.poll_interval", b.Notice.PollInterval, time.Second),
		},
		Evacuate: Evacuate{
			Margin:            f.duration("evacuate.margin", b.Evacuate.Margin, 10*time.Second),
			CheckpointTimeout: f.positive("evacuate.checkpoint_timeout", b.Evacuate.CheckpointTimeout, 2*time.Minute),
		},
	}
	p.Containerd.Address = fallback(p.Containerd.Address, "/run/containerd/containerd.sock")
	p.Containerd.Namespace = fallback(p.Containerd.Namespace, "nomad-spotter")
	p.Containerd.Snapshotter = fallback(p.Containerd.Snapshotter, "overlayfs")
	p.Containerd.Runtime = fallback(p.Containerd.Runtime, "io.containerd.runc.v2")
	p.Containerd.CgroupParent = path.Clean(fallback(p.Containerd.CgroupParent, defaultCgroupParent))
	p.Consul.Service = fallback(p.Consul.Service, "checkpoint-store")
	p.validate(f)
	return p, f.err()
}

func (p *Plugin) validate(f *faults) {
	f.absolute("state_dir", p.StateDir, "of the node", "/var/lib/nomad-spotter")
	if n := len(p.StateDir); n > MaxStateDir {
		f.add("state_dir", `%q has %d bytes, of which a socket path leaves room for %d; use a shorter path`, p.StateDir, n, MaxStateDir)
	}
	f.absolute("containerd.address", strings.TrimPrefix(p.Containerd.Address, "unix://"), "of containerd's socket", "/run/containerd/containerd.sock")
	if !identifier(p.Containerd.Namespace) {
		f.add("containerd.namespace", `%q is no containerd namespace; use letters and digits, joined by single "-", "_" or "."`, p.Containerd.Namespace)
	}
	f.absolute("containerd.cgroup_parent", p.Containerd.CgroupParent, "below the cgroup root", defaultCgroupParent)
	f.store("checkpoint.store", p.Checkpoint.Store)
	if p.Checkpoint.KeyFile != "" {
		f.absolute("checkpoint.key_file", p.Checkpoint.KeyFile, "of the node", "/etc/nomad.d/checkpoints.key")
	}
	if levels := []string{"trace", "debug", "info", "warn", "error"}; !slices.Contains(levels, p.Checkpoint.LogLevel) {
		f.add("checkpoint.log_level", `%q is no log level; use one of %s`, p.Checkpoint.LogLevel, strings.Join(levels, ", "))
	}
	f.httpURL("consul.address", p.Consul.Address, "http://127.0.0.1:8500", "http", "https", "unix")
	f.httpURL("nomad.address", p.Nomad.Address, "http://127.0.0.1:4646", "http", "https", "unix")
	if p.Nomad.Token != "" && p.Nomad.TokenFile != "" {
		f.add("nomad.token", `and nomad.token_file (%q) are both set; keep one`, p.Nomad.TokenFile)
	}
	if (p.Nomad.CertFile == "") != (p.Nomad.KeyFile == "") {
		f.add("nomad.cert_file", `is %q but nomad.key_file is %q; set both or neither`, p.Nomad.CertFile, p.Nomad.KeyFile)
	}
	if s := p.Notice.Source; s != NoticeNone && s != NoticeEC2 {
		f.add("notice.source", `%q is unknown; use "none" or "ec2"`, s)
	}
	f.httpURL("notice.endpoint", p.Notice.Endpoint, "http://169.254.169.254", "http", "https")
}

func fallback(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// capNames brings capabilities into one form: upper case, without the prefix.
func capNames(in []string) []string {
	out := make([]string, 0, len(in))
	for _, c := range in {
		out = append(out, strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(c)), "CAP_"))
	}
	return out
}

// nameRule is containerd's rule for namespaces: parts of letters and digits, joined by one of . _ -.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

func identifier(s string) bool { return len(s) <= 76 && nameRule.MatchString(s) }
