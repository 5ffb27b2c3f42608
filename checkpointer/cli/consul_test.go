package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// consulBinary finds Consul on the PATH or among the engines; "" if there is none.
func consulBinary() string {
	if p, err := exec.LookPath("consul"); err == nil {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	p := filepath.Join(cache, "spotter/bin/consul")
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// realConsul starts a Consul agent and sets $CONSUL: realconsul
func realConsul(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: realconsul")
	}
	var ports []any
	var open []net.Listener
	for range 4 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		open = append(open, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		ts.Check(err)
		ports = append(ports, port)
	}
	for _, l := range open { // only now, so that no two are the same
		ts.Check(l.Close())
	}
	flags := fmt.Sprintf("agent -dev -bind 127.0.0.1 -client 127.0.0.1 -node n1 -http-port %s -server-port %s -serf-lan-port %s -serf-wan-port %s -dns-port -1 -grpc-port -1 -grpc-tls-port -1 -log-level warn", ports...)
	cmd := exec.Command(consulBinary(), strings.Fields(flags)...)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := fmt.Sprintf("http://127.0.0.1:%s", ports[0])
	ts.Setenv("CONSUL", address)
	await(ts, "Consul has a leader", func() bool {
		resp, err := http.Get(address + "/v1/status/leader")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b := make([]byte, 8)
		n, _ := resp.Body.Read(b)
		return n > 4 // more than ""
	})
}

// await waits for something to become so.
func await(ts *testscript.TestScript, what string, ok func() bool) {
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			ts.Fatalf("gave up: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// eventually runs a command until its output has a text: eventually TEXT COMMAND...
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND...")
	}
	await(ts, fmt.Sprintf("%q of %v", args[0], args[1:]), func() bool {
		_ = ts.Exec(args[1], args[2:]...) // its output tells
		return strings.Contains(ts.ReadFile("stdout")+ts.ReadFile("stderr"), args[0]) != neg
	})
}
