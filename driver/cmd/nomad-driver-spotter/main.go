// Command nomad-driver-spotter is Nomad's task driver "spotter". Without arguments it serves the plugin to a Nomad
// client; as `nomad-driver-spotter agent --config FILE` it is the checkpoint agent of one task.
package main

import (
	"fmt"
	"os"
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 0:
		servePlugin()
	case len(args) == 3 && args[0] == "agent" && args[1] == "--config":
		os.Exit(runAgent(args[2]))
	default:
		fmt.Fprintln(os.Stderr, "nomad-driver-spotter: usage: nomad-driver-spotter [agent --config FILE]; without arguments it is started by a Nomad client")
		os.Exit(2)
	}
}
