// Command nomad-autoscaler-spotter is a plugin for nomad-autoscaler that keeps pools of spot and on-demand nodes.
package main

import (
	"context"
	"os"

	"nomad-spotter/autoscaler-plugin/cli"
	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/cloud/local"
	"nomad-spotter/autoscaler-plugin/pool"
)

// version is set by the linker.
var version = "dev"

func main() {
	program := cli.Program{
		Openers: map[string]pool.Opener{
			"local": func(s cloud.Setup) (pool.Provider, error) { return local.New(s) },
		},
		RunInstance: local.RunInstance, RunInit: local.RunInit,
		Version: version, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	os.Exit(program.Run(context.Background(), os.Args[1:]))
}
