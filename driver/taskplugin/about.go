// Package taskplugin is the DriverPlugin that Nomad calls: it translates remote procedure calls into calls of package
// lifecycle, and tells Nomad about the node by its fingerprint. It decides nothing about tasks.
package taskplugin

import (
	"runtime/debug"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-spotter/driver/config"
)

// Name is the driver's name in a job, and the plugin's.
const Name = "spotter"

// Version is the driver's version, set when it is linked.
var Version = ""

// version is what was linked in, or else what the Go toolchain knows.
func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "0.1.0-dev"
}

var capabilities = &drivers.Capabilities{
	SendSignals:       true,
	Exec:              true,
	FSIsolation:       drivers.FSIsolationImage,
	NetIsolationModes: []drivers.NetIsolationMode{drivers.NetIsolationModeHost, drivers.NetIsolationModeGroup},
	MountConfigs:      drivers.MountConfigSupportAll,
}

// PluginInfo implements base.BasePlugin.
func (*Driver) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type:              base.PluginTypeDriver,
		PluginApiVersions: []string{drivers.ApiVersion010},
		PluginVersion:     version(),
		Name:              Name,
	}, nil
}

// ConfigSchema implements base.BasePlugin.
func (*Driver) ConfigSchema() (*hclspec.Spec, error) { return config.PluginSchema(), nil }

// TaskConfigSchema implements drivers.DriverPlugin.
func (*Driver) TaskConfigSchema() (*hclspec.Spec, error) { return config.TaskSchema(), nil }

// Capabilities implements drivers.DriverPlugin.
func (*Driver) Capabilities() (*drivers.Capabilities, error) { return capabilities, nil }
