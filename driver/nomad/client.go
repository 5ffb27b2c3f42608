package nomad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
)

const (
	callTimeout = 5 * time.Second  // of every call that does not block on purpose
	waitTime    = 30 * time.Second // of a blocking query, as asked of the server
	// waitGrace is what a blocking query may take longer: Nomad adds up to a sixteenth of the wait as jitter.
	waitGrace = waitTime/16 + callTimeout
)

// Config says how to reach Nomad. An empty Address means that the API is not used.
type Config struct {
	Address   string // http://…, https://… or unix://…
	Token     string
	TokenFile string // read anew for every call, so that a rotated token is used at once; excludes Token
	Region    string
	CAFile    string // PEM, for https
	CertFile  string // client certificate in PEM, where Nomad verifies its HTTPS clients
	KeyFile   string
}

// Client calls one Nomad agent. It is safe for concurrent use.
type Client struct {
	cfg Config
	api *api.Client
	log hclog.Logger
}

// New checks cfg and makes a client; nothing is dialled yet.
func New(cfg Config, log hclog.Logger) (*Client, error) {
	switch {
	case cfg.Address == "":
		return nil, errors.New(`nomad.address: is empty; give the address of the node's Nomad agent, such as "http://127.0.0.1:4646"`)
	case cfg.Token != "" && cfg.TokenFile != "":
		return nil, fmt.Errorf("nomad.token and nomad.token_file (%q) are both set; keep one", cfg.TokenFile)
	}
	ac := &api.Config{
		Address:   cfg.Address,
		Region:    cfg.Region,
		TLSConfig: &api.TLSConfig{CACert: cfg.CAFile, ClientCert: cfg.CertFile, ClientKey: cfg.KeyFile},
	}
	c, err := api.NewClient(ac)
	if err != nil {
		return nil, fmt.Errorf("nomad.address %q: %w", cfg.Address, err)
	}
	return &Client{cfg: cfg, api: c, log: log.Named("nomad")}, nil
}

// Node is the client's view of one node.
func (c *Client) Node(id string) *Node { return &Node{c: c, id: id} }

// token returns the secret to send; empty means none is configured.
func (c *Client) token() (string, error) {
	if c.cfg.TokenFile == "" {
		return c.cfg.Token, nil
	}
	b, err := os.ReadFile(c.cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read nomad.token_file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// read calls f with query options that carry token and deadline, and classifies its error.
func (c *Client) read(ctx context.Context, timeout time.Duration, need right, opts api.QueryOptions, f func(*api.QueryOptions) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	token, err := c.token()
	if err != nil {
		return classify(need, token, err)
	}
	opts.AuthToken = token
	return classify(need, token, f(opts.WithContext(ctx)))
}

// write is read for calls that change something.
func (c *Client) write(ctx context.Context, need right, f func(*api.WriteOptions) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, err := c.token()
	if err != nil {
		return classify(need, token, err)
	}
	return classify(need, token, f((&api.WriteOptions{AuthToken: token}).WithContext(ctx)))
}
