package oss_test

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
	_ "nomad-spotter/checkpointer/store/oss"
	"nomad-spotter/checkpointer/store/storetest"
)

const bucket = "spotter-test"

// fake speaks as much of OSS as the SDK uses, for one bucket, whose name is in the path.
type fake struct {
	storetest.Objects
	versioned bool // such a bucket ignores x-oss-forbid-overwrite
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/"+bucket)
	name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	switch auth := r.Header.Get("Authorization"); {
	case !strings.HasPrefix(auth, "OSS id:") && !strings.HasPrefix(auth, "OSS4-HMAC-SHA256 Credential=id/"):
		fail(w, r, http.StatusForbidden, "AccessDenied")
	case r.Header.Get("X-Oss-Security-Token") != "sts":
		fail(w, r, http.StatusForbidden, "InvalidAccessKeyId")
	case !ok || err != nil:
		fail(w, r, http.StatusNotFound, "NoSuchBucket")
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
		if r.Header.Get("Range") != "" && r.Header.Get("X-Oss-Range-Behavior") != "standard" {
			fail(w, r, http.StatusBadRequest, "InvalidArgument")
			return
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
	if err != nil || r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) || r.ContentLength != int64(len(data)) {
		fail(w, r, http.StatusBadRequest, "InvalidDigest")
		return
	}
	object := storetest.Object{Data: data, Meta: map[string]string{}}
	for key, values := range r.Header {
		if strings.HasPrefix(key, "X-Oss-Meta-") {
			object.Meta[key] = values[0]
		}
	}
	if !f.Create(name, object, !f.versioned && r.Header.Get("X-Oss-Forbid-Overwrite") == "true") {
		fail(w, r, http.StatusConflict, "FileAlreadyExists")
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	names, more := f.List(q.Get("prefix"), q.Get("continuation-token"))
	type content struct {
		Key  string
		Size int
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	if q.Get("list-type") != "2" || q.Get("encoding-type") != "url" {
		fail(w, r, http.StatusBadRequest, "InvalidArgument")
		return
	}
	out.EncodingType = "url"
	for _, name := range names {
		object, _ := f.Get(name)
		out.Contents = append(out.Contents, content{url.QueryEscape(name), len(object.Data)})
	}
	if out.IsTruncated = more; more {
		out.NextContinuationToken = url.QueryEscape(names[len(names)-1])
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

func serve(t *testing.T, f *fake) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Setenv("OSS_ACCESS_KEY_ID", "id")
	t.Setenv("OSS_ACCESS_KEY_SECRET", "secret")
	t.Setenv("OSS_SESSION_TOKEN", "sts")
	return server.URL
}

var prefixes atomic.Int64

func open(t *testing.T, endpoint, options string) store.Store {
	t.Helper()
	s, err := store.Open(fmt.Sprintf("oss://%s/some/prefix%d?endpoint=%s%s", bucket, prefixes.Add(1), endpoint, options), true)
	must.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	endpoint := serve(t, &fake{})
	for _, options := range []string{"", "&region=cn-hangzhou"} { // both signatures
		t.Run(options, func(t *testing.T) {
			storetest.Contract(t, func(t *testing.T) store.Store { return open(t, endpoint, options) })
		})
	}
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
		store.ErrCredentials: say(http.StatusForbidden, "SecurityTokenExpired"),
		store.ErrDenied:      say(http.StatusForbidden, "AccessDenied"),
		store.ErrClock:       say(http.StatusForbidden, "RequestTimeTooSkewed"),
		store.ErrFull:        say(http.StatusInsufficientStorage, "QuotaExceeded"),
	})
}

func TestNoEndpoint(t *testing.T) {
	_, err := store.Open("oss://"+bucket, false)
	must.ErrorContains(t, err, "option endpoint is missing: add endpoint=oss-REGION.aliyuncs.com")
}

func TestReadme(t *testing.T) { storetest.Documented(t, "oss") }
