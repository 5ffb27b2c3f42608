package pool

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// What a drain leaves behind is stopped so that it is placed again: from Nomad 1.11 on, an allocation of a draining node
// is replaced only when that is asked for.
func TestStopWork_asksForReplacements(t *testing.T) {
	var mu sync.Mutex
	var stops []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/node/n1/allocations" {
			fmt.Fprint(w, `[{"ID":"a1","ClientStatus":"running"},{"ID":"a2","ClientStatus":"complete"},{"ID":"a3","ClientStatus":"running","DesiredStatus":"stop"}]`)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		stops = append(stops, r.URL.Path+"?reschedule="+r.URL.Query().Get("reschedule"))
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(s.Close)
	n, err := newNomadNodes(&nomad.Config{Address: s.URL}, "training")
	must.NoError(t, err)
	must.NoError(t, n.stopWork(t.Context(), "n1"))
	must.Eq(t, []string{"/v1/allocation/a1/stop?reschedule=true"}, stops)
}
