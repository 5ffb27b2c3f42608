package config

import (
	"fmt"
	"path"
	"slices"
)

// Permit checks what only an operator can allow or provide. The error names every fault.
func (p *Plugin) Permit(t *Task) error {
	f := &faults{root: "config"}
	const ask = "ask the operator of the node"
	if t.Privileged && !p.AllowPrivileged {
		f.add("privileged", `is true but the plugin's allow_privileged is false; remove it or %s`, ask)
	}
	if t.Seccomp == "unconfined" && !p.AllowPrivileged {
		f.add("seccomp", `is "unconfined" but the plugin's allow_privileged is false; remove it or %s`, ask)
	}
	for _, c := range t.CapAdd {
		if !slices.Contains(p.AllowCaps, c) && !slices.Contains(p.AllowCaps, "ALL") && !slices.Contains(DefaultCaps, c) && !p.AllowPrivileged {
			f.add("cap_add", `%q is not in the plugin's allow_caps; remove it or %s`, c, ask)
		}
	}
	if len(t.Devices) > 0 && !p.AllowPrivileged && !p.VolumesEnabled {
		f.add("devices", `need the plugin's volumes.enabled or allow_privileged; remove them or %s`, ask)
	}
	if c := t.Checkpoint; c != nil && c.Store != "" && c.Store != p.Checkpoint.Store && !p.VolumesEnabled {
		f.add("checkpoint.store", `%q is not the node's store (%q) and the plugin's volumes.enabled is false; remove it or %s`, c.Store, p.Checkpoint.Store, ask)
	}
	if c := t.Checkpoint; c != nil && c.Replicas > 0 && p.Consul.Address == "" {
		f.add("checkpoint.replicas", `%d need the plugin's consul.address, where the stores of other regions are found; leave it out or %s`, c.Replicas, ask)
	}
	for i, m := range t.Mounts {
		if m.Type == "bind" && path.IsAbs(m.Source) && !p.VolumesEnabled {
			f.add(fmt.Sprintf("mount[%d].source", i), `%q is a path of the node but the plugin's volumes.enabled is false; use a path below local/, secrets/ or alloc/, or %s`, m.Source, ask)
		}
	}
	return f.err()
}

// DefaultCaps are the capabilities that a container has, unless dropped: those of Nomad's other drivers, which are
// Docker's without NET_RAW.
var DefaultCaps = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
	"SETPCAP", "SETUID", "SYS_CHROOT",
}
