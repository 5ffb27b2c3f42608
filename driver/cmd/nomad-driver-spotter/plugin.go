package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/evacuate"
	"nomad-spotter/driver/lifecycle"
	"nomad-spotter/driver/nomad"
	"nomad-spotter/driver/notice"
	"nomad-spotter/driver/taskplugin"
)

// servePlugin serves the driver until Nomad ends it. Containers and agents live on.
func servePlugin() {
	plugins.ServeCtx(func(ctx context.Context, log hclog.Logger) any {
		exe, err := os.Executable()
		if err != nil {
			log.Error("find own executable, which is also the checkpoint agent", "error", err)
			exe = os.Args[0]
		}
		return taskplugin.New(ctx, log, taskplugin.Makers{
			Runtime: makeRuntime, Notice: makeNotice, API: makeAPI, Agent: []string{exe, "agent", "--config"},
		})
	})
}

func makeRuntime(c *config.Plugin, log hclog.Logger) (lifecycle.Runtime, error) {
	return containerd.New(containerd.Options{
		Address: c.Containerd.Address, Namespace: c.Containerd.Namespace, Snapshotter: c.Containerd.Snapshotter,
		Runtime: c.Containerd.Runtime, PullTimeout: c.PullTimeout, FIFODir: lifecycle.FIFODir(c.StateDir), Log: log,
	})
}

func makeNotice(c *config.Plugin, log hclog.Logger) (notice.Source, error) {
	switch c.Notice.Source {
	case config.NoticeEC2:
		return notice.NewEC2(c.Notice.Endpoint, c.Notice.PollInterval, log), nil
	case config.NoticeNone:
		return notice.None{}, nil
	default:
		return nil, fmt.Errorf("config.notice.source: %q is unknown", c.Notice.Source)
	}
}

// nomadAPI gives the driver's view of Nomad's client.
type nomadAPI struct{ *nomad.Client }

func (a nomadAPI) Node(id string) evacuate.Cluster { return a.Client.Node(id) }

func makeAPI(c *config.Plugin, log hclog.Logger) (taskplugin.API, error) {
	client, err := nomad.New(nomad.Config{
		Address: c.Nomad.Address, Token: c.Nomad.Token, TokenFile: c.Nomad.TokenFile, Region: c.Nomad.Region,
		CAFile: c.Nomad.CAFile, CertFile: c.Nomad.CertFile, KeyFile: c.Nomad.KeyFile,
	}, log)
	if err != nil {
		return nil, err
	}
	return nomadAPI{client}, nil
}
