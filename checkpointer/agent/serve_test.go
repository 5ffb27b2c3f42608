package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// raw makes a call that the client would not make.
func raw(t *testing.T, socket, method, path, body string) (status int, message string) {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, strings.NewReader(body))
	must.NoError(t, err)
	resp, err := c.Do(req)
	must.NoError(t, err)
	defer resp.Body.Close()
	var e api.Error
	must.NoError(t, json.NewDecoder(resp.Body).Decode(&e))
	return resp.StatusCode, e.Message
}

// What is asked wrongly is told with the field, what it holds and what to do, and nothing of it counts.
func TestSocket_BadCalls(t *testing.T) {
	n := newNode(t, filepath.Join(t.TempDir(), "store"), nil)
	n.start()
	n.restore()
	n.write("ckpt_1.pt", "one")
	for _, c := range []struct {
		call, body string
		status     int
		want       []string
	}{
		{"POST /v1/finished", `{"step": 1, "path": "ckpt_1.pt", "request": "77"}`, 400, []string{`request: "77" is wrong: give a whole number from 0`}},
		{"POST /v1/finished", `{"step": "a", "path": 5}`, 400, []string{`step: "a" is wrong: give a whole number`, "path: 5 is wrong: give a text in quotes"}},
		{"POST /v1/finished", `{"step": -1, "path": "/elsewhere/x", "request": 77}`, 400, []string{
			"step: -1 is negative", `path: "/elsewhere/x" is not directly in /checkpoints: give the name of a file or directory there`,
			"request: there is no request 77, the last one is 0: give the id of the request that the checkpoint answers, 0 for none",
		}},
		{"POST /v1/finished", `{"step": 1, "path": "/checkpoints/a/b"}`, 400, []string{`path: "/checkpoints/a/b" is not directly in /checkpoints`}},
		{"POST /v1/finished", `{"step": 1, "path": ""}`, 400, []string{`path: "" is not directly in /checkpoints`}},
		{"POST /v1/finished", `{"step": 1, "path": "none"}`, 400, []string{`path: there is no file or directory "none" in /checkpoints: announce`}},
		{"POST /v1/finished", `{"stepp": 1, "path": "ckpt_1.pt"}`, 400, []string{"stepp: unknown: remove it or correct its name to one of path, request, step"}},
		{"POST /v1/finished", `[1]`, 400, []string{"decode body: [1] is not a JSON object"}},
		{"GET /v1/status?after=x", "", 400, []string{`after: "x" is not a whole number`}},
		{"GET /v1/finished", "", 404, []string{"there is no GET /v1/finished on this socket: use one of POST /v1/finished, GET /v1/durable, GET /v1/status"}},
		{"POST /v1/quit", "", 404, []string{"there is no POST /v1/quit on this socket"}},
		{"GET /", "", 404, []string{"use one of POST /v1/finished"}},
	} {
		t.Run(fmt.Sprint(c.call, c.body), func(t *testing.T) {
			method, path, _ := strings.Cut(c.call, " ")
			status, message := raw(t, n.conf.TaskSocket, method, path, c.body)
			must.EqOp(t, c.status, status)
			for _, want := range c.want {
				must.StrContains(t, message, want)
			}
		})
	}
	status, message := raw(t, n.conf.ControlSocket, "GET", "/v2/status", "")
	must.EqOp(t, 404, status)
	must.StrContains(t, message, "POST /v1/quit")

	// A newer driver may say more than this agent knows.
	status, _ = raw(t, n.conf.ControlSocket, "POST", "/v1/cancel", `{"id": 1, "why": "later"}`)
	must.EqOp(t, 200, status)
	status, message = raw(t, n.conf.ControlSocket, "POST", "/v1/request", `{"final": 1}`)
	must.EqOp(t, 400, status)
	must.StrContains(t, message, "final: 1 is wrong: give true or false")

	s, err := n.ctl.Status(t.Context(), 0, 0)
	must.NoError(t, err)
	must.Nil(t, s.Request)
}
