package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/checkpointer/agent"
	_ "nomad-spotter/checkpointer/store/azblob" // the stores that URLs can name, besides file
	_ "nomad-spotter/checkpointer/store/cos"
	_ "nomad-spotter/checkpointer/store/gs"
	_ "nomad-spotter/checkpointer/store/oss"
	_ "nomad-spotter/checkpointer/store/s3"
)

// runAgent is the checkpoint agent of one task. Its log, in JSON, goes to standard error, which the driver points to a
// file. It ends with code 0 when its work is done or it was told to, else with 1.
func runAgent(file string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := hclog.New(&hclog.LoggerOptions{Name: "agent", Level: hclog.Info, JSONFormat: true, Output: os.Stderr})
	conf, err := agent.LoadConfig(file)
	if err == nil {
		if level := hclog.LevelFromString(conf.LogLevel); level != hclog.NoLevel {
			log.SetLevel(level)
		}
		err = agent.Run(ctx, conf, log)
	}
	if err != nil {
		log.Error("agent failed", "error", err)
		return 1
	}
	return 0
}
