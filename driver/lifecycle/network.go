package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/atomicfile"
	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
)

// Files of the host that name servers and neighbours. systemd-resolved listens on 127.0.0.53, which another network
// namespace cannot reach; it keeps a second file with the real servers.
const (
	hostResolv     = "/etc/resolv.conf"
	hostHosts      = "/etc/hosts"
	resolvedStub   = "127.0.0.53"
	resolvedResolv = "/run/systemd/resolve/resolv.conf"
)

// networkFiles makes the container's resolv.conf and hosts, or takes the host's.
func networkFiles(tc *drivers.TaskConfig, c *config.Task, dir string) ([]containerd.Mount, error) {
	var out []containerd.Mount
	add := func(content, name, from, target string) error {
		if content != "" {
			from = filepath.Join(dir, name)
			if err := atomicfile.WriteFile(from, []byte(content), 0o644); err != nil {
				return err
			}
		} else if from = resolve(from); from == "" {
			return nil // a host without the file: the image's own serves
		}
		out = append(out, containerd.Mount{Source: from, Target: target, Readonly: true, Options: []string{"nosuid", "nodev"}})
		return nil
	}
	group := tc.NetworkIsolation != nil && tc.NetworkIsolation.Mode == drivers.NetIsolationModeGroup
	resolv := hostResolv
	if b, err := os.ReadFile(hostResolv); group && err == nil && strings.Contains(string(b), resolvedStub) {
		if _, err := os.Stat(resolvedResolv); err == nil {
			resolv = resolvedResolv
		}
	}
	if err := add(resolvConf(tc.DNS), "resolv.conf", resolv, "/etc/resolv.conf"); err != nil {
		return nil, err
	}
	hosts, err := hostsFile(tc, c, group)
	if err != nil {
		return nil, err
	}
	return out, add(hosts, "hosts", hostHosts, "/etc/hosts")
}

// resolve follows links; it returns "" for what does not exist.
func resolve(name string) string {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return ""
	}
	return target
}

// resolvConf writes the job's dns block; empty means that there is none.
func resolvConf(d *drivers.DNSConfig) string {
	if d == nil {
		return ""
	}
	var b strings.Builder
	if len(d.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(d.Searches, " "))
	}
	for _, s := range d.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(d.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(d.Options, " "))
	}
	return b.String()
}

// hostsFile is a hosts file of the container's own; empty means that the host's will do.
func hostsFile(tc *drivers.TaskConfig, c *config.Task, group bool) (string, error) {
	var b strings.Builder
	switch {
	case group:
		b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
		if hc := tc.NetworkIsolation.HostsConfig; hc != nil && hc.Address != "" && hc.Hostname != "" {
			fmt.Fprintf(&b, "%s %s\n", hc.Address, hc.Hostname)
		}
	case len(c.ExtraHosts) > 0:
		host, err := os.ReadFile(hostHosts)
		if err != nil {
			return "", fmt.Errorf("config.extra_hosts: read the host's file: %w", err)
		}
		b.Write(host)
		b.WriteString("\n")
	}
	for _, h := range c.ExtraHosts {
		name, addr, _ := strings.Cut(h, ":")
		fmt.Fprintf(&b, "%s %s\n", addr, name)
	}
	return b.String(), nil
}
