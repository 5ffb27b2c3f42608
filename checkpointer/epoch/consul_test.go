package epoch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// start runs a real Consul agent, or skips.
func start(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("consul")
	if err != nil {
		cache, cerr := os.UserCacheDir()
		must.NoError(t, cerr)
		bin = filepath.Join(cache, "spotter/bin/consul")
		if _, err := os.Stat(bin); err != nil {
			t.Skipf("no consul binary on the PATH or at %s: run `make engines`", bin)
		}
	}
	var ports []string
	var open []net.Listener
	for range 4 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		_, p, err := net.SplitHostPort(l.Addr().String())
		must.NoError(t, err)
		open, ports = append(open, l), append(ports, p)
	}
	for _, l := range open {
		must.NoError(t, l.Close())
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "consul.log"))
	must.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), bin, "agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1", "-node", "n1", "-datacenter", "east",
		"-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2], "-serf-wan-port", ports[3],
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-log-level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	address := "http://127.0.0.1:" + ports[0]
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := NewConsul(t.Context(), api.ConsulConfig{Address: address})
		if err == nil {
			_, err = c.Next(t.Context(), "up", 0)
		}
		if err == nil {
			return address
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(log.Name())
			t.Fatalf("consul does not come up: %v\n%s", err, b)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestConsul(t *testing.T) {
	address := start(t)
	c, err := NewConsul(t.Context(), api.ConsulConfig{Address: address})
	must.NoError(t, err)
	must.EqOp(t, "consul:east", c.Name())
	const lineage = "default/train/@forks/ä b%2F"
	last, err := c.Current(t.Context(), lineage)
	must.NoError(t, err)
	must.EqOp(t, 0, last)
	for i, above := range []uint64{0, 0, 7, 3} {
		got, err := c.Next(t.Context(), lineage, above)
		must.NoError(t, err)
		must.EqOp(t, []uint64{1, 2, 8, 9}[i], got)
		last, err = c.Current(t.Context(), lineage)
		must.NoError(t, err)
		must.EqOp(t, got, last)
	}
	last, err = c.Current(t.Context(), "default/train")
	must.NoError(t, err)
	must.EqOp(t, 0, last)

	// Those who race for epochs get different ones, without a gap.
	var mu sync.Mutex
	var wg sync.WaitGroup
	var got []uint64
	for range 8 {
		wg.Go(func() {
			own, err := NewConsul(context.Background(), api.ConsulConfig{Address: address, Datacenter: "east"})
			for range 5 {
				var n uint64
				if err == nil {
					n, err = own.Next(context.Background(), "race", 0)
				}
				mu.Lock()
				got = append(got, n)
				mu.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	must.Len(t, 40, got)
	for i, n := range got {
		must.EqOp(t, uint64(i+1), n)
	}

	// Another datacenter is not there; what is no epoch is not overwritten.
	west, err := NewConsul(t.Context(), api.ConsulConfig{Address: address, Datacenter: "west"})
	must.NoError(t, err)
	must.EqOp(t, "consul:west", west.Name())
	_, err = west.Next(t.Context(), "race", 0)
	must.ErrorContains(t, err, "read epoch of race from Consul")
	client, err := consul.NewClient(&consul.Config{Address: address})
	must.NoError(t, err)
	for _, v := range []string{"x", "-1", "", "18446744073709551616"} {
		_, err = client.KV().Put(&consul.KVPair{Key: prefix + "bad", Value: []byte(v)}, nil)
		must.NoError(t, err)
		_, err = c.Next(t.Context(), "bad", 0)
		must.ErrorContains(t, err, "which is no epoch")
	}
	_, err = client.KV().Put(&consul.KVPair{Key: prefix + "full", Value: []byte("18446744073709551615")}, nil)
	must.NoError(t, err)
	_, err = c.Next(t.Context(), "full", 0)
	must.ErrorContains(t, err, "there is no higher epoch")
}

// A Consul that does not answer, or not as one, is an error and holds nobody up.
func TestConsulTrouble(t *testing.T) {
	answer := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a := <-answer:
			fmt.Fprint(w, a)
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	answer <- `{"Config":{}}`
	_, err := NewConsul(t.Context(), api.ConsulConfig{Address: srv.URL})
	must.ErrorContains(t, err, "does not say of which datacenter it is")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = NewConsul(ctx, api.ConsulConfig{Address: srv.URL})
	must.ErrorIs(t, err, context.DeadlineExceeded)
	c, err := NewConsul(t.Context(), api.ConsulConfig{Address: srv.URL, Datacenter: "dc"})
	must.NoError(t, err)
	_, err = c.Next(ctx, "l", 0)
	must.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = NewConsul(t.Context(), api.ConsulConfig{Address: "ftp://x"})
	must.ErrorContains(t, err, `consul.address "ftp://x"`)
}
