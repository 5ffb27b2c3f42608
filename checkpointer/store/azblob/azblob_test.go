package azblob_test

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	_ "nomad-spotter/checkpointer/store/azblob"
	"nomad-spotter/checkpointer/store/storetest"
)

const account, container = "spotteraccount", "spotter-test"

// fake speaks as much of the Blob service as the SDK uses, for one container.
type fake struct{ storetest.Objects }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-version", "2025-05-05")
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/"+account+"/"+container)
	name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey "+account+":"):
		fail(w, r, http.StatusForbidden, "AuthenticationFailed", "no signature")
	case !ok || err != nil:
		fail(w, r, http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
	case name == "" && r.Method == http.MethodGet && r.URL.Query().Get("comp") == "list":
		f.list(w, r)
	case r.Method == http.MethodPut && r.Header.Get("x-ms-blob-type") == "BlockBlob":
		f.upload(w, r, name)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		object, ok := f.Get(name)
		if !ok {
			fail(w, r, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
			return
		}
		for key, value := range object.Meta {
			w.Header().Set("x-ms-meta-"+key, value)
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("x-ms-blob-type", "BlockBlob")
		if v := r.Header.Get("x-ms-range"); v != "" {
			r.Header.Set("Range", v)
		}
		object.Serve(w, r)
	case r.Method == http.MethodDelete:
		if !f.Delete(name) {
			fail(w, r, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
			return
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		fail(w, r, http.StatusBadRequest, "InvalidUri", r.Method+" "+r.URL.String())
	}
}

func fail(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprint(w, errorBody(code, message))
	}
}

func errorBody(code, message string) string {
	return "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code + "</Code><Message>" + message + "</Message></Error>"
}

func (f *fake) upload(w http.ResponseWriter, r *http.Request, name string) {
	data, err := io.ReadAll(r.Body)
	sum, serr := base64.StdEncoding.DecodeString(r.Header.Get("x-ms-content-crc64"))
	if err != nil || serr != nil || len(sum) != 8 {
		fail(w, r, http.StatusBadRequest, "Crc64Mismatch", fmt.Sprint(err, serr))
		return
	}
	object := storetest.Object{Data: data, Meta: map[string]string{}}
	for key, values := range r.Header {
		if key, ok := strings.CutPrefix(key, "X-Ms-Meta-"); ok {
			object.Meta[key] = values[0]
		}
	}
	if !f.Create(name, object, r.Header.Get("If-None-Match") == "*") {
		fail(w, r, http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
		return
	}
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
	w.WriteHeader(http.StatusCreated)
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	names, more := f.List(q.Get("prefix"), q.Get("marker"))
	type blob struct {
		Name   string
		Length string `xml:"Properties>Content-Length"`
		Date   string `xml:"Properties>Last-Modified"`
	}
	var out struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      []blob   `xml:"Blobs>Blob"`
		NextMarker string
	}
	for _, name := range names {
		object, _ := f.Get(name)
		out.Blobs = append(out.Blobs, blob{name, strconv.Itoa(len(object.Data)), "Fri, 02 Jan 2026 03:04:05 GMT"})
	}
	if more {
		out.NextMarker = names[len(names)-1]
	}
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(out)
}

// serve starts a fake, and a key for it.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(&fake{})
	t.Cleanup(server.Close)
	t.Setenv("AZURE_STORAGE_ACCOUNT", account)
	t.Setenv("AZURE_STORAGE_KEY", base64.StdEncoding.EncodeToString([]byte("a key")))
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	return server.URL
}

var prefixes atomic.Int64

func open(t *testing.T, endpoint, options string) store.Store {
	t.Helper()
	s, err := store.Open(fmt.Sprintf("azblob://%s/some/prefix%d?endpoint=%s/%s%s", container, prefixes.Add(1), endpoint, account, options), true)
	must.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	endpoint := serve(t)
	storetest.Contract(t, func(t *testing.T) store.Store { return open(t, endpoint, "") })
}

func TestNetwork(t *testing.T) {
	say := func(status int, code, message string) storetest.Reply {
		return storetest.Reply{
			Status: status, Body: errorBody(code, message),
			Header: http.Header{"Content-Type": {"application/xml"}, "X-Ms-Error-Code": {code}},
		}
	}
	storetest.Network(t, serve(t), func(t *testing.T, endpoint string) store.Store {
		return open(t, endpoint, "&attempts=3&timeout=500ms")
	}, map[error]storetest.Reply{
		store.ErrBucket:      say(http.StatusNotFound, "ContainerNotFound", "words"),
		store.ErrCredentials: say(http.StatusForbidden, "AuthenticationFailed", "Signature not valid in the specified time frame"),
		store.ErrDenied:      say(http.StatusForbidden, "AuthorizationPermissionMismatch", "words"),
		store.ErrClock:       say(http.StatusForbidden, "AuthenticationFailed", "Request date header too old: 'Fri, 02 Jan 2026 03:04:05 GMT'"),
		store.ErrFull:        say(http.StatusConflict, "AccountLimitExceeded", "words"),
	})
}

func TestAccount(t *testing.T) {
	for _, c := range []struct {
		name, url, want string
		env             map[string]string
	}{
		{name: "no account", url: "azblob://cont", want: "no storage account: add account=NAME"},
		{name: "URL without a key", url: "azblob://cont?account=a&endpoint=http://h:1/a", want: "AZURE_STORAGE_KEY is not set"},
		{
			name: "two accounts", url: "azblob://cont?account=a", want: `account "a" and AccountName "b"`,
			env: map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=b;AccountKey=a2V5;EndpointSuffix=core.windows.net"},
		},
		{name: "an endpoint that holds more", url: "azblob://cont?account=a&endpoint=h;AccountKey=x", want: "azblob://cont"},
		{name: "key", url: "azblob://cont?account=a", env: map[string]string{"AZURE_STORAGE_KEY": "a2V5"}},
		{name: "identity", url: "azblob://cont?account=a"},
		{
			name: "connection string", url: "azblob://cont/prefix",
			env: map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=b;AccountKey=a2V5;EndpointSuffix=core.windows.net"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"} {
				t.Setenv(name, c.env[name])
			}
			s, err := store.Open(c.url, false)
			if c.want != "" {
				must.ErrorContains(t, err, c.want)
				return
			}
			must.NoError(t, err)
			must.EqOp(t, c.url, s.URL())
		})
	}
}

func TestReadme(t *testing.T) { storetest.Documented(t, "azblob") }
