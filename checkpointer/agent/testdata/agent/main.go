// Command agent is an agent without the SDKs of object stores, built without the race detector, whose memory is measured.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/checkpointer/agent"
)

func main() {
	conf, err := agent.LoadConfig(os.Args[1])
	if err == nil {
		err = agent.Run(context.Background(), conf, hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
