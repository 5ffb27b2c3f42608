package config

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclparse"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// decoder turns HCL into what a plugin is sent: Nomad's own schema conversion and encoding.
func decoder(t *testing.T, schema *hclspec.Spec, body hcl.Body) func(any) error {
	t.Helper()
	spec, diags := hclspecutils.Convert(schema)
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	v, diags := hcldec.Decode(body, spec, &hcl.EvalContext{})
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	b, err := msgpack.Marshal(v, v.Type())
	must.NoError(t, err)
	return func(out any) error { return base.MsgPackDecode(b, out) }
}

func native(t *testing.T, text string) hcl.Body {
	t.Helper()
	f, diags := hclparse.NewParser().ParseHCL([]byte(text), "test.hcl")
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	return f.Body
}

// wire is how a config block reaches the schema in a Nomad client: as JSON, a block being a list of objects.
func wire(t *testing.T, v any) hcl.Body {
	t.Helper()
	b, err := json.Marshal(v)
	must.NoError(t, err)
	f, diags := hcljson.Parse(b, "test.json")
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	return f.Body
}

func TestPluginDefaults(t *testing.T) {
	want := &Plugin{
		Enabled:  true,
		StateDir: "/var/lib/nomad-spotter",
		Containerd: Containerd{
			Address: "/run/containerd/containerd.sock", Namespace: "nomad-spotter", Snapshotter: "overlayfs",
			Runtime: "io.containerd.runc.v2", CgroupParent: defaultCgroupParent,
		},
		AllowCaps:   []string{},
		PullTimeout: 10 * time.Minute,
		Checkpoint:  PluginCheckpoint{RestoreTimeout: 2 * time.Minute, FinishTimeout: 5 * time.Minute, LogLevel: "info"},
		Consul:      Consul{Service: "checkpoint-store"},
		Notice:      Notice{Source: "none", PollInterval: time.Second},
		Evacuate:    Evacuate{Margin: 10 * time.Second, CheckpointTimeout: 2 * time.Minute},
	}
	got, err := DecodePlugin(decoder(t, PluginSchema(), native(t, "")))
	must.NoError(t, err)
	must.Eq(t, want, got)
}

func TestPluginEverything(t *testing.T) {
	got, err := DecodePlugin(decoder(t, PluginSchema(), native(t, `
		enabled   = false
		state_dir = "/srv/spotter/"
		containerd {
			address       = "/srv/c.sock"
			namespace     = "train"
			snapshotter   = "native"
			runtime       = "io.containerd.kata.v2"
			cgroup_parent = "/train"
		}
		allow_privileged = true
		allow_caps       = ["cap_sys_ptrace", "NET_RAW"]
		volumes { enabled = true }
		pull_timeout = "1m"
		checkpoint {
			store           = "file:///srv/checkpoints"
			restore_timeout = "3m"
			finish_timeout  = "4m"
			log_level       = "debug"
		}
		consul {
			address    = "http://127.0.0.1:8500"
			token      = "t"
			service    = "s"
			datacenter = "west"
		}
		nomad {
			address    = "https://127.0.0.1:4646"
			token_file = "/srv/token"
			region     = "r"
			ca_file    = "/srv/ca.pem"
			cert_file  = "/srv/cert.pem"
			key_file   = "/srv/key.pem"
		}
		notice {
			source        = "ec2"
			endpoint      = "http://127.0.0.1:1338"
			poll_interval = "500ms"
		}
		evacuate {
			margin             = "0s"
			checkpoint_timeout = "90s"
		}`)))
	must.NoError(t, err)
	must.Eq(t, &Plugin{
		StateDir:        "/srv/spotter",
		Containerd:      Containerd{Address: "/srv/c.sock", Namespace: "train", Snapshotter: "native", Runtime: "io.containerd.kata.v2", CgroupParent: "/train"},
		AllowPrivileged: true,
		AllowCaps:       []string{"SYS_PTRACE", "NET_RAW"},
		VolumesEnabled:  true,
		PullTimeout:     time.Minute,
		Checkpoint:      PluginCheckpoint{Store: "file:///srv/checkpoints", RestoreTimeout: 3 * time.Minute, FinishTimeout: 4 * time.Minute, LogLevel: "debug"},
		Consul:          Consul{Address: "http://127.0.0.1:8500", Token: "t", Service: "s", Datacenter: "west"},
		Nomad:           Nomad{Address: "https://127.0.0.1:4646", TokenFile: "/srv/token", Region: "r", CAFile: "/srv/ca.pem", CertFile: "/srv/cert.pem", KeyFile: "/srv/key.pem"},
		Notice:          Notice{Source: "ec2", Endpoint: "http://127.0.0.1:1338", PollInterval: 500 * time.Millisecond},
		Evacuate:        Evacuate{CheckpointTimeout: 90 * time.Second},
	}, got)
}

func TestPluginFaults(t *testing.T) {
	cases := map[string]string{
		`state_dir = "var/lib"`:                                       `config.state_dir: "var/lib" is relative`,
		`state_dir = "/` + strings.Repeat("x", MaxStateDir) + `"`:     `socket path`,
		"containerd {\n address = \"run/c.sock\"\n}":                  `config.containerd.address: "run/c.sock" is relative`,
		"containerd {\n namespace = \"a/b\"\n}":                       `config.containerd.namespace: "a/b"`,
		"containerd {\n cgroup_parent = \"x\"\n}":                     `config.containerd.cgroup_parent: "x" is relative`,
		`pull_timeout = "0s"`:                                         `config.pull_timeout: "0s" would leave no time`,
		`pull_timeout = "-1s"`:                                        `config.pull_timeout: "-1s" is negative`,
		"checkpoint {\n store = \"ftp://x/y\"\n}":                     `config.checkpoint.store: "ftp://x/y" has the scheme "ftp"`,
		"checkpoint {\n store = \"file://x/y\"\n}":                    `names no directory of this machine`,
		"checkpoint {\n store = \"/x\"\n}":                            `has the scheme ""`,
		"checkpoint {\n restore_timeout = \"soon\"\n}":                `config.checkpoint.restore_timeout: "soon" is no duration`,
		"checkpoint {\n log_level = \"loud\"\n}":                      `config.checkpoint.log_level: "loud"`,
		"checkpoint {\n key_file = \"k\"\n}":                          `config.checkpoint.key_file: "k" is relative`,
		"consul {\n address = \"127.0.0.1:8500\"\n}":                  `config.consul.address: "127.0.0.1:8500" is no address`,
		"nomad {\n address = \"nomad\"\n}":                            `config.nomad.address: "nomad" is no address`,
		"nomad {\n token = \"a\"\n token_file = \"b\"\n}":             `config.nomad.token: and nomad.token_file`,
		"nomad {\n cert_file = \"a\"\n}":                              `config.nomad.cert_file: is "a" but nomad.key_file is ""`,
		"notice {\n source = \"gcp2\"\n}":                             `config.notice.source: "gcp2" is unknown`,
		"notice {\n source = \"ec2\"\n endpoint = \"169.254.1.1\"\n}": `config.notice.endpoint: "169.254.1.1" is no address`,
		"evacuate {\n margin = \"-5s\"\n}":                            `config.evacuate.margin: "-5s" is negative`,
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			_, err := DecodePlugin(decoder(t, PluginSchema(), native(t, text)))
			must.ErrorContains(t, err, want)
		})
	}
}

func TestLongestStateDir(t *testing.T) {
	_, err := DecodePlugin(decoder(t, PluginSchema(), native(t, `state_dir = "/`+strings.Repeat("x", MaxStateDir-1)+`"`)))
	must.NoError(t, err)
}

func TestAllFaultsTogether(t *testing.T) {
	_, err := DecodePlugin(decoder(t, PluginSchema(), native(t, "state_dir = \"x\"\npull_timeout = \"y\"\nnotice {\n source = \"z\"\n}")))
	must.ErrorContains(t, err, "config.state_dir")
	must.ErrorContains(t, err, "config.pull_timeout")
	must.ErrorContains(t, err, "config.notice.source")
}

func TestPluginOverTheWire(t *testing.T) {
	got, err := DecodePlugin(decoder(t, PluginSchema(), wire(t, map[string]any{
		"containerd": []any{map[string]any{"namespace": "n1"}},
		"checkpoint": []any{map[string]any{"store": "file:///s"}},
		"volumes":    []any{map[string]any{"enabled": true}},
	})))
	must.NoError(t, err)
	must.Eq(t, "n1", got.Containerd.Namespace)
	must.Eq(t, "file:///s", got.Checkpoint.Store)
	must.True(t, got.VolumesEnabled)
}

func TestTaskEverything(t *testing.T) {
	want := &Task{
		Image: "docker.io/library/busybox:1", ForcePull: true, Auth: Auth{Username: "u", Password: "p"},
		Entrypoint: []string{"/e"}, Command: "c", Args: []string{"a"}, WorkDir: "/w", Hostname: "h", ExtraHosts: []string{"db:10.0.0.7"},
		Labels: map[string]string{"team": "x"},
		Mounts: []Mount{
			{Type: "bind", Source: "local/data", Target: "/data", Readonly: true, Options: []string{"noexec"}},
			{Type: "tmpfs", Target: "/scratch"},
		},
		Devices:        []Device{{HostPath: "/dev/fuse", ContainerPath: "/dev/fuse", Permissions: "rw"}},
		ReadonlyRootfs: true, ShmSizeBytes: 1 << 30, Privileged: true,
		CapAdd: []string{"NET_ADMIN"}, CapDrop: []string{"CHOWN"}, Seccomp: "unconfined", GroupAdd: []string{"video"},
		Ulimits:   []Ulimit{{Name: "RLIMIT_CORE", Soft: 0, Hard: 0}, {Name: "RLIMIT_NOFILE", Soft: 1024, Hard: ^uint64(0)}},
		PidsLimit: 100, CPUHardLimit: true,
		Checkpoint: &Checkpoint{
			Dir: "/ckpt", Pattern: "step-*", Signal: 10, Interval: 30 * time.Second, Precision: "compact", Lineage: "team/run-7", Store: "s3://bucket/train?region=eu-west-1",
			Rank: 3, Ranks: 8, Epoch: 7, Durability: "replicated", Replicas: 1, Effort: "small", MaxCPUs: 2, MaxMemoryBytes: 1 << 30, Fork: true, SingleWriter: true,
		},
	}
	text := `
		image      = "docker.io/library/busybox:1"
		force_pull = true
		auth {
			username = "u"
			password = "p"
		}
		entrypoint  = ["/e"]
		command     = "c"
		args        = ["a"]
		work_dir    = "/w"
		hostname    = "h"
		extra_hosts = ["db:10.0.0.7"]
		labels {
			team = "x"
		}
		mount {
			source   = "local/data"
			target   = "/data"
			readonly = true
			options  = ["noexec"]
		}
		mount {
			type   = "tmpfs"
			target = "/scratch"
		}
		devices {
			host_path          = "/dev/fuse"
			container_path     = "/dev/fuse"
			cgroup_permissions = "rw"
		}
		readonly_rootfs = true
		shm_size        = 1073741824
		privileged      = true
		cap_add         = ["net_admin"]
		cap_drop        = ["CAP_CHOWN"]
		seccomp         = "unconfined"
		group_add       = ["video"]
		ulimit {
			nofile = "1024:-1"
			core   = "0"
		}
		pids_limit     = 100
		cpu_hard_limit = true
		checkpoint {
			dir      = "/ckpt/"
			pattern  = "step-*"
			signal   = "SIGUSR1"
			interval = "30s"
			precision = "compact"
			lineage  = "team/run-7"
			store    = "s3://bucket/train?region=eu-west-1"
			rank     = "3" # as "${NOMAD_ALLOC_INDEX}" is given
			ranks    = 8
			epoch    = 7
			durability = "replicated"
			replicas = 1
			effort   = "small"
			max_cpus = 2
			max_memory_bytes = 1073741824
			fork     = true
			single_writer = true
		}`
	got, err := DecodeTask(decoder(t, TaskSchema(), native(t, text)))
	must.NoError(t, err)
	must.Eq(t, want, got)
}

// TestTaskOverTheWire has maps both as an attribute and as a block, which arrive as an object and as a list of objects.
func TestTaskOverTheWire(t *testing.T) {
	for name, labels := range map[string]any{"attribute": map[string]any{"a": "b"}, "block": []any{map[string]any{"a": "b"}}} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeTask(decoder(t, TaskSchema(), wire(t, map[string]any{
				"image": "x", "labels": labels, "sysctl": map[string]any{"net.core.somaxconn": "1024"}, "ulimit": []any{map[string]any{"nofile": "5"}},
				"mounts":     []any{map[string]any{"source": "local/a", "target": "/a"}},
				"checkpoint": []any{map[string]any{}},
			})))
			must.NoError(t, err)
			must.Eq(t, map[string]string{"a": "b"}, got.Labels)
			must.Eq(t, map[string]string{"net.core.somaxconn": "1024"}, got.Sysctl)
			must.Eq(t, &Checkpoint{Dir: "/checkpoints", Precision: "exact", Rank: IndexRank, Durability: "store", Effort: "auto"}, got.Checkpoint)
			must.Eq(t, "bind", got.Mounts[0].Type)
		})
	}
}

func TestTaskAutoInterval(t *testing.T) {
	got, err := DecodeTask(decoder(t, TaskSchema(), native(t, "image = \"x\"\ncheckpoint {\n interval = \"auto\"\n}")))
	must.NoError(t, err)
	must.True(t, got.Checkpoint.Auto)
	must.EqOp(t, 0, got.Checkpoint.Interval)
}

func TestPluginCadence(t *testing.T) {
	got, err := DecodePlugin(decoder(t, PluginSchema(), native(t, `cadence {
		mtbf                = "5h"
		hazard_shape        = 0.55
		notice_success      = 0.7
		max_interval        = "1h"
		spot_usd_per_hour   = 0.9
		rework_usd_per_hour = 3.06
		storage_usd_per_gb  = 0.001
	}`)))
	must.NoError(t, err)
	must.Eq(t, Cadence{
		MTBF: 5 * time.Hour, HazardShape: 0.55, NoticeSuccess: 0.7, MaxInterval: time.Hour,
		SpotUSDPerHour: 0.9, ReworkUSDPerHour: 3.06, StorageUSDPerGB: 0.001,
	}, got.Cadence)
	_, err = DecodePlugin(decoder(t, PluginSchema(), native(t, `cadence {
		mtbf                = "5s"
		hazard_shape        = 9
		notice_success      = 1
		max_interval        = "-1h"
		rework_usd_per_hour = -3
		storage_usd_per_gb  = 0.001
		spot_usd_per_hour   = "cheap"
	}`)))
	must.Error(t, err)
	for _, want := range []string{
		`config.cadence.mtbf: "5s" is less than "1m0s"`, "config.cadence.hazard_shape: 9 is not from 0.2 to 5", "config.cadence.notice_success: 1 is not",
		`config.cadence.spot_usd_per_hour: "cheap" is no number; write one such as 0.7`, `config.cadence.max_interval: "-1h" is negative`, "config.cadence.rework_usd_per_hour: -3 is no price",
		"config.cadence.rework_usd_per_hour: is -3 and cadence.spot_usd_per_hour is 0", "config.cadence.storage_usd_per_gb: is 0.001 without",
	} {
		must.StrContains(t, err.Error(), want)
	}
}

func TestNoCheckpointBlock(t *testing.T) {
	got, err := DecodeTask(decoder(t, TaskSchema(), native(t, `image = "x"`)))
	must.NoError(t, err)
	must.Nil(t, got.Checkpoint)
}

func TestTaskFaults(t *testing.T) {
	block := func(s string) string { return "image = \"x\"\ncheckpoint {\n" + s + "\n}" }
	cases := map[string]string{
		``:                                               `config.image: is missing`,
		`image = "oci-archive:"`:                         `config.image: "oci-archive:" names no file`,
		`image = "oci-archive:/etc/x.tar"`:               `is absolute`,
		`image = "oci-archive:local/../../x"`:            `leaves the task's directories`,
		`image = "a b"`:                                  `white space`,
		block(`dir = "ckpt"`):                            `config.checkpoint.dir: "ckpt" is relative; give an absolute path inside the container, such as "/checkpoints"`,
		block(`dir = "/"`):                               `config.checkpoint.dir: "/" would hide`,
		block(`interval = "-1s"`):                        `config.checkpoint.interval: "-1s" is negative`,
		block(`interval = "often"`):                      `config.checkpoint.interval: "often" is no duration`,
		block(`signal = "SIGNOPE"`):                      `config.checkpoint.signal: "SIGNOPE" is no signal`,
		block(`signal = "SIGKILL"`):                      `config.checkpoint.signal: "SIGKILL" cannot be caught`,
		block(`pattern = "["`):                           `config.checkpoint.pattern: "[" is no glob pattern`,
		block(`pattern = "a/b"`):                         `config.checkpoint.pattern: "a/b" holds a "/"`,
		block(`precision = "half"`):                      `config.checkpoint.precision: "half" is unknown; use "exact" or "compact"`,
		block(`store = "s4://b"`):                        `config.checkpoint.store: "s4://b" has the scheme "s4"`,
		block(`lineage = "a//b"`):                        `config.checkpoint.lineage: "a//b"`,
		block(`lineage = "../b"`):                        `config.checkpoint.lineage: "../b"`,
		block(`store = "s3:///b"`):                       `config.checkpoint.store: "s3:///b" names no bucket`,
		block(`store = "s3://a:b@c"`):                    `config.checkpoint.store: "s3://a:xxxxx@c" holds a user or password`,
		block(`ranks = -1`):                              `config.checkpoint.ranks: -1 is no number of ranks`,
		block(`ranks = 2`):                               `config.checkpoint.epoch: is missing; with 2 ranks`,
		block("ranks = 2\nrank = 2\nepoch = 1"):          `config.checkpoint.rank: 2 is not one of the 2 ranks`,
		block(`rank = 1`):                                `config.checkpoint.rank: 1 is not one of the 1 ranks`,
		block(`epoch = 1`):                               `config.checkpoint.epoch: is 1 without ranks`,
		block(`epoch = -1`):                              `config.checkpoint.epoch: -1 is negative`,
		block(`durability = "cloud"`):                    `config.checkpoint.durability: "cloud" is unknown; use "store" or "local" or "replicated"`,
		block(`durability = "replicated"`):               `config.checkpoint.durability: is "replicated" without replicas`,
		block(`replicas = -1`):                           `config.checkpoint.replicas: -1 is negative`,
		block(`effort = "best"`):                         `config.checkpoint.effort: "best" is unknown`,
		block(`max_cpus = -1`):                           `config.checkpoint.max_cpus: -1 is negative`,
		block(`max_memory_bytes = -1`):                   `config.checkpoint.max_memory_bytes: -1 is negative`,
		"image = \"x\"\nwork_dir = \"w\"":                `config.work_dir: "w" is relative`,
		"image = \"x\"\nextra_hosts = [\"db\"]":          `config.extra_hosts[0]: "db"`,
		"image = \"x\"\nshm_size = -1":                   `config.shm_size: -1 is negative`,
		"image = \"x\"\npids_limit = -1":                 `config.pids_limit: -1 is negative`,
		"image = \"x\"\nseccomp = \"none\"":              `config.seccomp: "none" is unknown`,
		"image = \"x\"\nauth {\n username = \"u\"\n}":    `config.auth: has only one`,
		"image = \"x\"\nulimit {\n files = \"1\"\n}":     `config.ulimit.files: is unknown`,
		"image = \"x\"\nulimit {\n nofile = \"many\"\n}": `config.ulimit.nofile: "many" is no limit`,
		"image = \"x\"\nulimit {\n nofile = \"2:1\"\n}":  `soft limit above`,
		"image = \"x\"\nmount {\n target = \"/d\"\n}":    `config.mount[0].source: is empty`,
		"image = \"x\"\nmount {\n source = \"local/../..\"\n target = \"/d\"\n}":                  `leaves the task's directories`,
		"image = \"x\"\nmount {\n type = \"tmpfs\"\n source = \"/s\"\n target = \"/d\"\n}":        `config.mount[0].source: is "/s" but type is "tmpfs"`,
		"image = \"x\"\nmount {\n type = \"nfs\"\n target = \"/d\"\n}":                            `config.mount[0].type: "nfs" is unknown`,
		"image = \"x\"\nmount {\n source = \"local/a\"\n target = \"d\"\n}":                       `config.mount[0].target: "d" is relative`,
		"image = \"x\"\nmount {\n type = \"tmpfs\"\n target = \"/checkpoints\"\n}\ncheckpoint {}": `config.checkpoint.dir: "/checkpoints" is also the target of mount[0]`,
		"image = \"x\"\ndevices {\n host_path = \"dev\"\n}":                                       `config.devices[0].host_path: "dev" is relative`,
		"image = \"x\"\ndevices {\n host_path = \"/dev/x\"\n cgroup_permissions = \"rx\"\n}":      `config.devices[0].cgroup_permissions: "rx"`,
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			_, err := DecodeTask(decoder(t, TaskSchema(), native(t, text)))
			must.ErrorContains(t, err, want)
		})
	}
}

func TestPermit(t *testing.T) {
	strict, open := &Plugin{}, &Plugin{AllowPrivileged: true, VolumesEnabled: true, AllowCaps: []string{"ALL"}, Consul: Consul{Address: "http://127.0.0.1:8500"}}
	cases := []struct {
		task  Task
		fault string // of the strict operator; empty if allowed
	}{
		{Task{CapAdd: []string{"CHOWN"}}, ""},
		{Task{CapAdd: []string{"SYS_ADMIN"}}, `config.cap_add: "SYS_ADMIN"`},
		{Task{Privileged: true}, "config.privileged"},
		{Task{Seccomp: "unconfined"}, "config.seccomp"},
		{Task{Devices: []Device{{HostPath: "/dev/fuse"}}}, "config.devices"},
		{Task{Mounts: []Mount{{Type: "bind", Source: "local/x"}}}, ""},
		{Task{Mounts: []Mount{{Type: "tmpfs"}}}, ""},
		{Task{Checkpoint: &Checkpoint{Store: "file:///etc/x"}}, `config.checkpoint.store: "file:///etc/x"`},
		{Task{Checkpoint: &Checkpoint{}}, ""},
		{Task{Checkpoint: &Checkpoint{Replicas: 1}}, `config.checkpoint.replicas: 1 need the plugin's consul.address`},
		{Task{Mounts: []Mount{{Type: "bind", Source: "/etc"}}}, `config.mount[0].source: "/etc"`},
	}
	for _, c := range cases {
		must.NoError(t, open.Permit(&c.task))
		if err := strict.Permit(&c.task); c.fault == "" {
			must.NoError(t, err)
		} else {
			must.ErrorContains(t, err, c.fault)
		}
	}
	must.NoError(t, (&Plugin{AllowCaps: []string{"SYS_PTRACE"}}).Permit(&Task{CapAdd: []string{"SYS_PTRACE"}}))
}

func TestDecodeErrorIsPassedOn(t *testing.T) {
	broken := errors.New("broken")
	_, err := DecodePlugin(func(any) error { return broken })
	must.ErrorIs(t, err, broken)
	_, err = DecodeTask(func(any) error { return broken })
	must.ErrorIs(t, err, broken)
}
