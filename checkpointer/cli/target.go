package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/discovery"
	"nomad-spotter/checkpointer/epoch"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/sealed"
)

// lookTimeout bounds one question to Consul.
const lookTimeout = 30 * time.Second

// storeFlags are the flags that say which store, and with which key.
type storeFlags struct {
	url string
	consulFlags
	keyFlags
	epochs string
	single bool // the store that was found was registered as one for a single writer per lineage
}

// consulFlags are the flags that say how to ask Consul.
type consulFlags struct{ address, token, service string }

// keyFlags say with which key a repository is encrypted.
type keyFlags struct{ file string }

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "store", "", "store URL, such as file:///absolute/path or s3://bucket/prefix")
	f.consulFlags.add(c)
	f.keyFlags.add(c)
}

// addEpochs adds the flag of commands that claim epochs.
func (f *storeFlags) addEpochs(c *cobra.Command) {
	c.Flags().StringVar(&f.epochs, "epochs", "", "address of a Consul agent that gives out writer epochs where the store does not create objects conditionally (default: that of --consul)")
}

// authority returns who gives out epochs where a store cannot.
func (f *storeFlags) authority() func(context.Context) (repository.Authority, error) {
	conf := f.config()
	conf.Address = cmp.Or(f.epochs, conf.Address)
	if conf.Address == "" {
		return nil
	}
	return func(ctx context.Context) (repository.Authority, error) { return epoch.NewConsul(ctx, conf) }
}

func (f *consulFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.address, "consul", "", "address of a Consul agent to find the store with, such as http://127.0.0.1:8500")
	c.Flags().StringVar(&f.token, "consul-token", "", "Consul token (default $CONSUL_HTTP_TOKEN)")
	c.Flags().StringVar(&f.service, "service", "checkpoint-store", "Consul service of the stores")
}

func (f *keyFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "key-file", "", "file with the key of an encrypted repository (default: the text in $"+sealed.KeyVariable+", if any)")
}

// load reads the key; nil if there is none.
func (f *keyFlags) load() (*sealed.Key, error) { return sealed.LoadKey(f.file, os.Getenv) }

func (f *consulFlags) config() api.ConsulConfig {
	token := f.token
	if token == "" {
		token = os.Getenv("CONSUL_HTTP_TOKEN")
	}
	return api.ConsulConfig{Address: f.address, Token: token, Service: f.service}
}

// check notes what is wrong with the flags.
func (f *storeFlags) check(l *line) {
	switch {
	case (f.url == "") == (f.address == ""):
		l.fault("give exactly one of --store URL and --consul ADDRESS")
	case f.url != "":
		l.checkURL("--store", f.url)
	default:
		l.checkConsul("--consul", f.config())
	}
	if f.epochs != "" {
		conf := f.config()
		conf.Address = f.epochs
		l.checkConsul("--epochs", conf)
	}
}

// checkConsul notes an address that cannot be that of a Consul agent.
func (l *line) checkConsul(flag string, conf api.ConsulConfig) {
	_, err := discovery.New(conf)
	if err == nil && !isAddress(conf.Address) {
		err = fmt.Errorf("%q is no address of a Consul agent: give one such as http://127.0.0.1:8500", conf.Address)
	}
	l.check(flag, err)
}

// isAddress tells whether a text is a URL with a host or a socket, or a host and its port. A bare name would be asked at
// port 80, where no Consul agent listens.
func isAddress(text string) bool {
	if !strings.Contains(text, "://") {
		host, port, err := net.SplitHostPort(text)
		return err == nil && host != "" && port != ""
	}
	u, err := url.Parse(text)
	return err == nil && (u.Host != "" || u.Scheme == "unix")
}

func (l *line) checkURL(flag, raw string) {
	_, _, err := store.Parse(raw)
	l.check(flag, err)
}

// open opens the repository that the flags name; with create, an empty store becomes one, an encrypted one if there is a
// key.
func (f *storeFlags) open(ctx context.Context, create bool) (*repository.Repository, error) {
	key, err := f.load()
	if err != nil {
		return nil, err
	}
	if f.url != "" {
		return openURL(ctx, f.url, key, create)
	}
	stores, err := f.find(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range stores {
		r, err := openURL(ctx, s.URL, key, create)
		if err == nil {
			f.single = s.SingleWriter
			return r, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// openAll opens all repositories that can be reached, preferred first, and tells of those that cannot.
func (f *storeFlags) openAll(cmd *cobra.Command) ([]*repository.Repository, error) {
	ctx := cmd.Context()
	if f.url != "" {
		r, err := f.open(ctx, false)
		return []*repository.Repository{r}, err
	}
	key, err := f.load()
	if err != nil {
		return nil, err
	}
	stores, err := f.find(ctx)
	if err != nil {
		return nil, err
	}
	var out []*repository.Repository
	var errs []error
	for _, s := range stores {
		r, err := openURL(ctx, s.URL, key, false)
		if err == nil {
			out = append(out, r)
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.URL, err))
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		complain(cmd.ErrOrStderr(), fmt.Errorf("a store is passed over, it may hold newer checkpoints: %w", err))
	}
	return out, nil
}

// find asks Consul for the stores, preferred first.
func (f *consulFlags) find(ctx context.Context) ([]discovery.Store, error) {
	finder, err := discovery.New(f.config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return finder.Stores(ctx)
}

func openURL(ctx context.Context, url string, key *sealed.Key, create bool) (*repository.Repository, error) {
	s, err := store.Open(url, create)
	if err != nil {
		return nil, err
	}
	if create && key != nil {
		s, err = sealed.Create(ctx, s, *key)
	} else {
		s, err = sealed.Open(ctx, s, key)
	}
	if err != nil {
		return nil, err
	}
	return repository.Open(ctx, s, create)
}
