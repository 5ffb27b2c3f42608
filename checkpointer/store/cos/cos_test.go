package cos_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	_ "nomad-spotter/checkpointer/store/cos"
	"nomad-spotter/checkpointer/store/storetest"
)

const bucket = "spotter-1250000000"

// fake speaks as much of COS as the SDK uses, for one bucket, whose host it is.
type fake struct {
	storetest.Objects
	versioned bool // such a bucket ignores x-cos-forbid-overwrite
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	switch auth := r.Header.Get("Authorization"); {
	case err != nil:
		fail(w, r, http.StatusBadRequest, "InvalidURI")
	case !strings.Contains(auth, "q-ak=id&") || strings.Contains(auth, "authorization"):
		fail(w, r, http.StatusForbidden, "InvalidAccessKeyId")
	case r.Header.Get("X-Cos-Security-Token") != "sts":
		fail(w, r, http.StatusForbidden, "ExpiredToken")
	case name == "" && r.Method == http.MethodGet:
		f.list(w, r)
	case r.Method == http.MethodPut:
		f.upload(w, r, name)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		object, ok := f.Get(name)
		if !ok {
			fail(w, r, http.StatusNotFound, "NoSuchKey")
			return
		}
		for key, value := range object.Meta {
			w.Header().Set(key, value)
		}
		object.Serve(w, r)
	case r.Method == http.MethodDelete:
		f.Delete(name)
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func fail(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprint(w, errorBody(code))
	}
}

func errorBody(code string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>words</Message><RequestId>1</RequestId></Error>`
}

func (f *fake) upload(w http.ResponseWriter, r *http.Request, name string) {
	data, err := io.ReadAll(r.Body)
	sum := md5.Sum(data)
	if err != nil || r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) || (len(data) > 0 && r.ContentLength != int64(len(data))) {
		fail(w, r, http.StatusBadRequest, "InvalidDigest")
		return
	}
	object := storetest.Object{Data: data, Meta: map[string]string{}}
	for key, values := range r.Header {
		if strings.HasPrefix(key, "X-Cos-Meta-") {
			object.Meta[key] = values[0]
		}
	}
	if !f.Create(name, object, !f.versioned && r.Header.Get("X-Cos-Forbid-Overwrite") == "true") {
		fail(w, r, http.StatusConflict, "FileAlreadyExists")
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	names, more := f.List(q.Get("prefix"), q.Get("marker"))
	type content struct {
		Key  string
		Size int
	}
	var out struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		NextMarker  string
		Contents    []content
	}
	for _, name := range names {
		object, _ := f.Get(name)
		out.Contents = append(out.Contents, content{name, len(object.Data)})
	}
	if out.IsTruncated = more; more {
		out.NextMarker = names[len(names)-1]
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

func serve(t *testing.T, f *fake) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Setenv("COS_SECRET_ID", "id")
	t.Setenv("COS_SECRET_KEY", "secret")
	t.Setenv("COS_SESSION_TOKEN", "sts")
	return server.URL
}

var prefixes atomic.Int64

func open(t *testing.T, endpoint, options string) store.Store {
	t.Helper()
	s, err := store.Open(fmt.Sprintf("cos://%s/some/prefix%d?endpoint=%s%s", bucket, prefixes.Add(1), endpoint, options), true)
	must.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	endpoint := serve(t, &fake{})
	storetest.Contract(t, func(t *testing.T) store.Store { return open(t, endpoint, "") })
}

func TestVersioned(t *testing.T) {
	s := open(t, serve(t, &fake{versioned: true}), "")
	must.ErrorIs(t, store.Probe(t.Context(), s), store.ErrNotConditional)
}

func TestNetwork(t *testing.T) {
	say := func(status int, code string) storetest.Reply {
		return storetest.Reply{Status: status, Header: http.Header{"Content-Type": {"application/xml"}}, Body: errorBody(code)}
	}
	storetest.Network(t, serve(t, &fake{}), func(t *testing.T, endpoint string) store.Store {
		return open(t, endpoint, "&attempts=3&timeout=500ms")
	}, map[error]storetest.Reply{
		store.ErrBucket:      say(http.StatusNotFound, "NoSuchBucket"),
		store.ErrCredentials: say(http.StatusForbidden, "ExpiredToken"),
		store.ErrDenied:      say(http.StatusForbidden, "AccessDenied"),
		store.ErrClock:       say(http.StatusForbidden, "RequestTimeTooSkewed"),
		store.ErrFull:        say(http.StatusInsufficientStorage, "QuotaExceeded"),
	})
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"cos://" + bucket, "options region and endpoint are both missing"},
		{"cos://" + bucket + "?region=ap-guangzhou&endpoint=h", `options region, "ap-guangzhou", and endpoint, "h", are both given`},
		{"cos://nothing?region=ap-guangzhou", "want BUCKET-APPID"},
		{"cos://" + bucket + "?region=ap-guangzhou", ""},
	} {
		_, err := store.Open(c.url, false)
		if c.want == "" {
			must.NoError(t, err)
			continue
		}
		must.ErrorContains(t, err, c.want)
	}
}

func TestNoKey(t *testing.T) {
	s := open(t, serve(t, &fake{}), "&attempts=2")
	t.Setenv("COS_SECRET_KEY", "")
	err := store.Probe(t.Context(), s)
	must.ErrorIs(t, err, store.ErrCredentials)
	must.ErrorContains(t, err, "set COS_SECRET_ID")
}

func TestReadme(t *testing.T) { storetest.Documented(t, "cos") }
