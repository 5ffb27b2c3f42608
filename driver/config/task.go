package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// ArchivePrefix marks an image that is an OCI (or Docker) archive in the task's directories.
const ArchivePrefix = "oci-archive:"

// Task is the checked config block of a task. It is stored in the driver's state, so fields keep their names.
type Task struct {
	Image      string
	ForcePull  bool
	Auth       Auth
	Entrypoint []string
	Command    string
	Args       []string
	WorkDir    string
	Hostname   string
	ExtraHosts []string // name:address
	Labels     map[string]string

	Mounts         []Mount
	Devices        []Device
	ReadonlyRootfs bool
	ShmSizeBytes   int64 // 0: the default of 64 MiB

	Privileged   bool
	CapAdd       []string // upper case, without CAP_
	CapDrop      []string
	Seccomp      string // "default" or "unconfined"
	GroupAdd     []string
	Sysctl       map[string]string
	Ulimits      []Ulimit
	PidsLimit    int64 // 0: none
	CPUHardLimit bool

	Checkpoint *Checkpoint // nil: no checkpoints
}

// Auth are credentials for the image's registry.
type Auth struct {
	Username string `codec:"username"`
	Password string `codec:"password"`
}

// Mount is a mount that the job asks for.
type Mount struct {
	Type     string   `codec:"type"` // bind or tmpfs
	Source   string   `codec:"source"`
	Target   string   `codec:"target"`
	Readonly bool     `codec:"readonly"`
	Options  []string `codec:"options"`
}

// Device is a device of the host that the job asks for.
type Device struct {
	HostPath      string `codec:"host_path"`
	ContainerPath string `codec:"container_path"`
	Permissions   string `codec:"cgroup_permissions"`
}

// Ulimit is one resource limit; Name is in OCI's form, such as "RLIMIT_NOFILE".
type Ulimit struct {
	Name string
	Soft uint64
	Hard uint64
}

type taskBlock struct {
	Image          string            `codec:"image"`
	ForcePull      bool              `codec:"force_pull"`
	Auth           Auth              `codec:"auth"`
	Entrypoint     []string          `codec:"entrypoint"`
	Command        string            `codec:"command"`
	Args           []string          `codec:"args"`
	WorkDir        string            `codec:"work_dir"`
	Hostname       string            `codec:"hostname"`
	ExtraHosts     []string          `codec:"extra_hosts"`
	Labels         map[string]string `codec:"labels"`
	Mounts         []Mount           `codec:"mount"`
	MountsList     []Mount           `codec:"mounts"`
	Devices        []Device          `codec:"devices"`
	ReadonlyRootfs bool              `codec:"readonly_rootfs"`
	ShmSize        int64             `codec:"shm_size"`
	Privileged     bool              `codec:"privileged"`
	CapAdd         []string          `codec:"cap_add"`
	CapDrop        []string          `codec:"cap_drop"`
	Seccomp        string            `codec:"seccomp"`
	GroupAdd       []string          `codec:"group_add"`
	Sysctl         map[string]string `codec:"sysctl"`
	Ulimit         map[string]string `codec:"ulimit"`
	PidsLimit      int64             `codec:"pids_limit"`
	CPUHardLimit   bool              `codec:"cpu_hard_limit"`
	Checkpoint     *checkpointBlock  `codec:"checkpoint"`
}

// TaskSchema is the schema of a task's config block. The image is not marked as required, so that its absence is
// reported together with all other faults.
func TaskSchema() *hclspec.Spec {
	attr := func(name, kind string) *hclspec.Spec { return hclspec.NewAttr(name, kind, false) }
	mount := hclspec.NewObject(map[string]*hclspec.Spec{
		"type":     attr("type", "string"),
		"source":   attr("source", "string"),
		"target":   attr("target", "string"),
		"readonly": attr("readonly", "bool"),
		"options":  attr("options", "list(string)"),
	})
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"image":      attr("image", "string"),
		"force_pull": attr("force_pull", "bool"),
		"auth": hclspec.NewBlock("auth", false, hclspec.NewObject(map[string]*hclspec.Spec{
			"username": attr("username", "string"),
			"password": attr("password", "string"),
		})),
		"entrypoint":  attr("entrypoint", "list(string)"),
		"command":     attr("command", "string"),
		"args":        attr("args", "list(string)"),
		"work_dir":    attr("work_dir", "string"),
		"hostname":    attr("hostname", "string"),
		"extra_hosts": attr("extra_hosts", "list(string)"),
		"labels":      hclspec.NewBlockAttrs("labels", "string", false),
		"mount":       hclspec.NewBlockList("mount", mount),
		"mounts":      hclspec.NewBlockList("mounts", mount),
		"devices": hclspec.NewBlockList("devices", hclspec.NewObject(map[string]*hclspec.Spec{
			"host_path":          attr("host_path", "string"),
			"container_path":     attr("container_path", "string"),
			"cgroup_permissions": attr("cgroup_permissions", "string"),
		})),
		"readonly_rootfs": attr("readonly_rootfs", "bool"),
		"shm_size":        attr("shm_size", "number"),
		"privileged":      attr("privileged", "bool"),
		"cap_add":         attr("cap_add", "list(string)"),
		"cap_drop":        attr("cap_drop", "list(string)"),
		"seccomp":         attr("seccomp", "string"),
		"group_add":       attr("group_add", "list(string)"),
		"sysctl":          hclspec.NewBlockAttrs("sysctl", "string", false),
		"ulimit":          hclspec.NewBlockAttrs("ulimit", "string", false),
		"pids_limit":      attr("pids_limit", "number"),
		"cpu_hard_limit":  attr("cpu_hard_limit", "bool"),
		"checkpoint":      hclspec.NewBlock("checkpoint", false, checkpointSchema()),
	})
}

// DecodeTask decodes, fills in the defaults and checks. The error names every fault.
func DecodeTask(decode func(any) error) (*Task, error) {
	var b taskBlock
	if err := decode(&b); err != nil {
		return nil, err
	}
	f := &faults{root: "config"}
	t := &Task{
		Image: b.Image, ForcePull: b.ForcePull, Auth: b.Auth,
		Entrypoint: b.Entrypoint, Command: b.Command, Args: b.Args, WorkDir: b.WorkDir,
		Hostname: b.Hostname, ExtraHosts: b.ExtraHosts, Labels: b.Labels,
		Mounts: append(b.Mounts, b.MountsList...), Devices: b.Devices,
		ReadonlyRootfs: b.ReadonlyRootfs, ShmSizeBytes: b.ShmSize,
		Privileged: b.Privileged, CapAdd: capNames(b.CapAdd), CapDrop: capNames(b.CapDrop),
		Seccomp: fallback(b.Seccomp, "default"), GroupAdd: b.GroupAdd, Sysctl: b.Sysctl,
		Ulimits: ulimits(f, b.Ulimit), PidsLimit: b.PidsLimit, CPUHardLimit: b.CPUHardLimit,
	}
	if c := b.Checkpoint; c != nil {
		t.Checkpoint = c.checkpoint(f)
	}
	t.validate(f)
	return t, f.err()
}

func (t *Task) validate(f *faults) {
	switch archive, ok := t.Archive(); {
	case t.Image == "":
		f.add("image", `is missing; give a reference such as "docker.io/library/busybox:1" or "oci-archive:local/train.oci.tar"`)
	case ok && archive == "":
		f.add("image", `%q names no file; write for example "oci-archive:local/train.oci.tar"`, t.Image)
	case ok && path.IsAbs(archive):
		f.add("image", `%q is absolute; give a path in the task's directories, such as "oci-archive:local/train.oci.tar"`, t.Image)
	case ok && slices.Contains(strings.Split(archive, "/"), ".."):
		f.add("image", `%q leaves the task's directories; give a path below local/, secrets/ or alloc/`, t.Image)
	case strings.ContainsAny(t.Image, " \t\n"):
		f.add("image", `%q contains white space; remove it`, t.Image)
	}
	if t.WorkDir != "" {
		f.absolute("work_dir", t.WorkDir, "inside the container", "/work")
	}
	for i, h := range t.ExtraHosts {
		if name, addr, ok := strings.Cut(h, ":"); !ok || name == "" || addr == "" {
			f.add(fmt.Sprintf("extra_hosts[%d]", i), `%q is not of the form name:address; write for example "db:10.0.0.7"`, h)
		}
	}
	if t.ShmSizeBytes < 0 {
		f.add("shm_size", `%d is negative; give a size in bytes, such as 1073741824`, t.ShmSizeBytes)
	}
	if t.PidsLimit < 0 {
		f.add("pids_limit", `%d is negative; give a number of processes, or leave it out for no limit`, t.PidsLimit)
	}
	if t.Seccomp != "default" && t.Seccomp != "unconfined" {
		f.add("seccomp", `%q is unknown; use "default" or "unconfined"`, t.Seccomp)
	}
	if (t.Auth.Username == "") != (t.Auth.Password == "") {
		f.add("auth", `has only one of username and password; set both`)
	}
	targets := map[string]string{}
	for i := range t.Mounts {
		t.validateMount(f, i, targets)
	}
	for i, d := range t.Devices {
		field := fmt.Sprintf("devices[%d]", i)
		f.absolute(field+".host_path", d.HostPath, "of the node", "/dev/fuse")
		if strings.Trim(d.Permissions, "rwm") != "" {
			f.add(field+".cgroup_permissions", `%q holds other letters than r, w and m; write for example "rw"`, d.Permissions)
		}
	}
	if t.Checkpoint != nil {
		t.Checkpoint.validate(f)
		if at, taken := targets[t.Checkpoint.Dir]; taken {
			f.add("checkpoint.dir", `%q is also the target of %s; use two different paths`, t.Checkpoint.Dir, at)
		}
	}
}

func (t *Task) validateMount(f *faults, i int, targets map[string]string) {
	field := fmt.Sprintf("mount[%d]", i)
	m := &t.Mounts[i]
	m.Type = fallback(m.Type, "bind")
	f.absolute(field+".target", m.Target, "inside the container", "/data")
	switch m.Type {
	case "bind":
		if m.Source == "" {
			f.add(field+".source", `is empty; give a path of the node, or one in the task's directories such as "local/data"`)
		}
		if !path.IsAbs(m.Source) && slices.Contains(strings.Split(m.Source, "/"), "..") {
			f.add(field+".source", `%q leaves the task's directories; give a path below local/, secrets/ or alloc/`, m.Source)
		}
	case "tmpfs":
		if m.Source != "" {
			f.add(field+".source", `is %q but type is "tmpfs", which has no source; remove it`, m.Source)
		}
	default:
		f.add(field+".type", `%q is unknown; use "bind" or "tmpfs"`, m.Type)
	}
	target := path.Clean(m.Target)
	if at, taken := targets[target]; taken {
		f.add(field+".target", `%q is also the target of %s; use two different paths`, m.Target, at)
	}
	targets[target] = field
}

// Archive returns the path of the image's archive below the task's directories, if it is one.
func (t *Task) Archive() (string, bool) { return strings.CutPrefix(t.Image, ArchivePrefix) }

// rlimits are the names that ulimit accepts, as in getrlimit(2).
var rlimits = []string{
	"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
	"rttime", "sigpending", "stack",
}

// ulimits reads limits of the form "soft:hard" or "both"; -1 and "unlimited" mean no limit.
func ulimits(f *faults, in map[string]string) []Ulimit {
	var out []Ulimit
	for _, name := range slices.Sorted(maps.Keys(in)) {
		field := "ulimit." + name
		if !slices.Contains(rlimits, name) {
			f.add(field, `is unknown; use one of %s`, strings.Join(rlimits, ", "))
			continue
		}
		softText, hardText, both := strings.Cut(in[name], ":")
		if !both {
			hardText = softText
		}
		soft, err1 := limit(softText)
		hard, err2 := limit(hardText)
		switch {
		case err1 != nil || err2 != nil:
			f.add(field, `%q is no limit; write a number or "soft:hard", such as "1024:4096" or "-1"`, in[name])
		case soft > hard:
			f.add(field, `%q has a soft limit above the hard limit; swap them`, in[name])
		default:
			out = append(out, Ulimit{Name: "RLIMIT_" + strings.ToUpper(name), Soft: soft, Hard: hard})
		}
	}
	return out
}

func limit(s string) (uint64, error) {
	if s == "-1" || s == "unlimited" {
		return ^uint64(0), nil
	}
	return strconv.ParseUint(s, 10, 64)
}
