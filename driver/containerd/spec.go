package containerd

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Spec says what a container looks like.
type Spec struct {
	ID         string
	Args       []string
	Env        []string // NAME=value
	Dir        string   // working directory
	User       User
	Hostname   string // empty: the host's, where the host's network is used
	CgroupPath string // below the cgroup root

	NetNS          string // path of a network namespace; empty: the host's network
	Mounts         []Mount
	Devices        []Device
	ReadonlyRootfs bool
	ShmSizeBytes   int64 // 0: 64 MiB

	Caps       []string // without CAP_; exactly these
	Privileged bool
	Seccomp    bool // the default profile
	Sysctl     map[string]string
	Rlimits    []Rlimit

	Resources Resources
}

// Mount is a bind mount, or a tmpfs where Source is empty.
type Mount struct {
	Source      string
	Target      string
	Readonly    bool
	Propagation string   // "private", "host-to-task", "bidirectional"; empty is private
	Options     []string // further ones, as of mount(8)
}

// Device is a device node of the host.
type Device struct {
	Host        string
	Target      string
	Permissions string // of r, w and m; empty: all
}

// Rlimit is one resource limit in OCI's form.
type Rlimit struct {
	Type string // such as "RLIMIT_NOFILE"
	Soft uint64
	Hard uint64
}

// Resources are the limits of the container's cgroup; zero means no limit.
type Resources struct {
	CPUShares       uint64
	CPUQuota        int64 // µs per CPUPeriod
	CPUPeriod       uint64
	CPUs            string // cpuset, such as "0-3,7"
	MemoryHardBytes int64  // above it, the kernel kills
	MemorySoftBytes int64  // reservation, below MemoryHardBytes
	LimitSwap       bool   // no swap beyond MemoryHardBytes; needs swap accounting in the kernel
	Pids            int64
}

// User is who the container's processes run as.
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // further groups
}

// Build makes the OCI runtime specification. It looks at the host for devices only.
func Build(s Spec) (*specs.Spec, error) {
	// The namespace only serves as the default of the cgroup's path, which is replaced.
	ctx := namespaces.WithNamespace(context.Background(), "spotter") //nolint:forbidigo // GenerateSpec does no I/O
	out, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: s.ID})
	if err != nil {
		return nil, fmt.Errorf("make default spec: %w", err)
	}
	if len(s.Args) == 0 {
		return nil, fmt.Errorf("nothing to run: neither config.command, config.args and config.entrypoint nor the image name a command")
	}
	out.Process.Args = s.Args
	out.Process.Env = s.Env
	out.Process.Cwd = s.Dir
	if out.Process.Cwd == "" {
		out.Process.Cwd = "/"
	}
	out.Process.User = specs.User{UID: s.User.UID, GID: s.User.GID, AdditionalGids: s.User.Groups}
	out.Process.Rlimits = nil // inherited from containerd, as with other drivers
	for _, r := range s.Rlimits {
		out.Process.Rlimits = append(out.Process.Rlimits, specs.POSIXRlimit{Type: r.Type, Soft: r.Soft, Hard: r.Hard})
	}
	out.Root.Readonly = s.ReadonlyRootfs
	out.Hostname = s.Hostname
	out.Linux.CgroupsPath = s.CgroupPath
	out.Linux.Sysctl = s.Sysctl
	s.namespaces(out)
	s.mounts(out)
	s.resources(out)
	caps, err := s.security(ctx, out)
	if err != nil {
		return nil, err
	}
	out.Process.Capabilities = caps
	if s.Seccomp && !s.Privileged {
		out.Linux.Seccomp = seccomp.DefaultProfile(out)
	}
	return out, s.devices(ctx, out)
}

func (s Spec) namespaces(out *specs.Spec) {
	var list []specs.LinuxNamespace
	for _, ns := range out.Linux.Namespaces {
		switch ns.Type {
		case specs.NetworkNamespace:
			if s.NetNS == "" {
				continue // the host's
			}
			ns.Path = s.NetNS
		case specs.UTSNamespace:
			if s.Hostname == "" && s.NetNS == "" {
				continue // the host's name is right where its network is used
			}
		default: // of the container's own
		}
		list = append(list, ns)
	}
	out.Linux.Namespaces = list
}

// hiddenMounts are default mounts that are left out: Docker's containers have the image's own /run.
var hiddenMounts = []string{"/run"}

func (s Spec) mounts(out *specs.Spec) {
	out.Mounts = slices.DeleteFunc(out.Mounts, func(m specs.Mount) bool { return slices.Contains(hiddenMounts, m.Destination) })
	for i, m := range out.Mounts {
		if m.Destination == "/dev/shm" && s.ShmSizeBytes > 0 {
			out.Mounts[i].Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "size=65536k" })
			out.Mounts[i].Options = append(out.Mounts[i].Options, "size="+strconv.FormatInt(s.ShmSizeBytes, 10))
		}
	}
	out.Mounts = append(out.Mounts, specs.Mount{
		Destination: "/sys/fs/cgroup",
		Type:        "cgroup",
		Source:      "cgroup",
		Options:     []string{"nosuid", "noexec", "nodev", "relatime", "ro"},
	})
	// A mount on /a must come before one on /a/b, or it would hide it.
	ordered := slices.Clone(s.Mounts)
	slices.SortStableFunc(ordered, func(a, b Mount) int { return depth(a.Target) - depth(b.Target) })
	for _, m := range ordered {
		out.Mounts = append(out.Mounts, m.oci())
	}
}

func depth(p string) int {
	n := 0
	for p = path.Clean(p); p != "/" && p != "."; p = path.Dir(p) {
		n++
	}
	return n
}

func (m Mount) oci() specs.Mount {
	if m.Source == "" {
		return specs.Mount{
			Destination: m.Target, Type: "tmpfs", Source: "tmpfs",
			Options: append([]string{"nosuid", "nodev"}, m.Options...),
		}
	}
	propagation := "rprivate"
	switch m.Propagation {
	case "host-to-task":
		propagation = "rslave"
	case "bidirectional":
		propagation = "rshared"
	}
	mode := "rw"
	if m.Readonly {
		mode = "ro"
	}
	return specs.Mount{
		Destination: m.Target, Type: "bind", Source: m.Source,
		Options: append([]string{"rbind", propagation, mode}, m.Options...),
	}
}

func (s Spec) resources(out *specs.Spec) {
	r := out.Linux.Resources
	r.CPU, r.Memory = &specs.LinuxCPU{Cpus: s.Resources.CPUs}, &specs.LinuxMemory{}
	if n := s.Resources.CPUShares; n > 0 {
		// The kernel takes 2 to 262144; Nomad's shares are MHz and may be more on a large machine.
		n = min(max(n, 2), 262144)
		r.CPU.Shares = &n
	}
	if n := s.Resources.CPUQuota; n > 0 {
		period := s.Resources.CPUPeriod
		r.CPU.Quota, r.CPU.Period = &n, &period
	}
	hard, soft := s.Resources.MemoryHardBytes, s.Resources.MemorySoftBytes
	if hard > 0 {
		r.Memory.Limit = &hard
		if s.Resources.LimitSwap {
			r.Memory.Swap = &hard // memory and swap together
		}
	}
	if soft > 0 {
		r.Memory.Reservation = &soft
	}
	if n := s.Resources.Pids; n > 0 {
		r.Pids = &specs.LinuxPids{Limit: &n}
	}
}

func (s Spec) security(ctx context.Context, out *specs.Spec) (*specs.LinuxCapabilities, error) {
	names := make([]string, 0, len(s.Caps))
	for _, c := range s.Caps {
		names = append(names, "CAP_"+c)
	}
	if s.Privileged {
		var err error
		if names, err = cap.Current(); err != nil {
			return nil, fmt.Errorf("read the capabilities that this process has: %w", err)
		}
		if err := oci.WithPrivileged(ctx, nil, nil, out); err != nil {
			return nil, fmt.Errorf("make spec privileged: %w", err)
		}
		out.Process.NoNewPrivileges = false
	}
	slices.Sort(names)
	return &specs.LinuxCapabilities{Bounding: names, Permitted: names, Effective: names}, nil
}

func (s Spec) devices(ctx context.Context, out *specs.Spec) error {
	opts := []oci.SpecOpts{oci.WithDefaultUnixDevices}
	if s.Privileged {
		opts = append(opts, oci.WithHostDevices, oci.WithAllDevicesAllowed)
	}
	for _, d := range s.Devices {
		target := d.Target
		if target == "" {
			target = d.Host
		}
		perm := d.Permissions
		if perm == "" {
			perm = "rwm"
		}
		opts = append(opts, oci.WithDevices(d.Host, target, perm))
	}
	for _, o := range opts {
		if err := o(ctx, nil, nil, out); err != nil {
			return fmt.Errorf("add devices: %w", err)
		}
	}
	return nil
}

// MergeEnv puts the later lists' variables over the earlier ones' and sorts by name.
func MergeEnv(lists ...map[string]string) []string {
	all := map[string]string{}
	for _, l := range lists {
		maps.Copy(all, l)
	}
	out := make([]string, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return out
}

// KnownCaps are all capabilities that this package knows, without CAP_.
func KnownCaps() []string {
	var out []string
	for _, c := range cap.Known() {
		out = append(out, strings.TrimPrefix(c, "CAP_"))
	}
	return out
}
