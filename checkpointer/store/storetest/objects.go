package storetest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Object is an object of Objects.
type Object struct {
	Data []byte
	Meta map[string]string
}

// Objects is what stands behind a vendor's fake: objects and their metadata. Listings come in pages of five, so that a
// client's paging is tried. The zero value is empty.
type Objects struct {
	mu      sync.Mutex
	objects map[string]Object
}

// page is how many objects a listing returns at once.
const page = 5

// Create stores an object; with conditional it does not replace one, and says so.
func (o *Objects) Create(name string, object Object, conditional bool) (created bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.objects == nil {
		o.objects = map[string]Object{}
	}
	if _, ok := o.objects[name]; ok && conditional {
		return false
	}
	o.objects[name] = object
	return true
}

// Get returns an object.
func (o *Objects) Get(name string) (Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, ok := o.objects[name]
	return object, ok
}

// Delete removes an object and tells whether there was one.
func (o *Objects) Delete(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.objects[name]
	delete(o.objects, name)
	return ok
}

// List returns the names of one page of the objects below prefix and after a name, sorted, and whether there are more.
func (o *Objects) List(prefix, after string) (names []string, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(o.objects)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(names) == page {
			return names, true
		}
		names = append(names, name)
	}
	return names, false
}

// Serve answers GET and HEAD with an object's content, or the range of it that the request's Range header asks for. Of an
// empty object no range can be had, as at every vendor.
func (object Object) Serve(w http.ResponseWriter, r *http.Request) {
	if len(object.Data) == 0 && r.Header.Get("Range") != "" {
		w.Header().Set("Content-Range", "bytes */0")
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(object.Data))
}
