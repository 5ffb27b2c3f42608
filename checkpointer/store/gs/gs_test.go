package gs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	_ "nomad-spotter/checkpointer/store/gs"
	"nomad-spotter/checkpointer/store/storetest"
)

const bucket = "spotter-test"

// fake speaks as much of Google Cloud Storage as the SDK uses: single-request uploads, metadata, listings and deletions in
// the JSON protocol, reads in the XML protocol, and the exchange of a signed assertion for a token.
type fake struct {
	storetest.Objects
	revoked atomic.Bool
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if path == "/token" {
		if f.revoked.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"token","token_type":"Bearer","expires_in":3600}`)
		return
	}
	if r.Header.Get("Authorization") != "Bearer token" {
		fail(w, http.StatusUnauthorized, "authError", "Invalid Credentials")
		return
	}
	rest, metadata := strings.CutPrefix(path, "/storage/v1/b/"+bucket+"/o")
	name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	switch {
	case r.Method == http.MethodPost && path == "/upload/storage/v1/b/"+bucket+"/o":
		f.upload(w, r)
	case metadata && r.Method == http.MethodGet && rest == "":
		f.list(w, r)
	case metadata && r.Method == http.MethodGet:
		object, ok := f.Get(name)
		if !ok {
			fail(w, http.StatusNotFound, "notFound", "No such object: "+bucket+"/"+name)
			return
		}
		reply(w, describe(name, object))
	case metadata && r.Method == http.MethodDelete:
		if !f.Delete(name) {
			fail(w, http.StatusNotFound, "notFound", "No such object: "+bucket+"/"+name)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/"+bucket+"/"):
		name, err := url.PathUnescape(strings.TrimPrefix(path, "/"+bucket+"/"))
		object, ok := f.Get(name)
		if err != nil || !ok {
			w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>`)
			return
		}
		w.Header().Set("X-Goog-Generation", "1")
		w.Header().Set("X-Goog-Hash", "crc32c="+crc(object.Data))
		object.Serve(w, r)
	default:
		fail(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
	}
}

func crc(b []byte) string {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func fail(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	fmt.Fprint(w, errorBody(status, reason, message))
}

func errorBody(status int, reason, message string) string {
	b, _ := json.Marshal(map[string]any{"error": map[string]any{
		"code": status, "message": message, "errors": []map[string]string{{"domain": "global", "reason": reason, "message": message}},
	}})
	return string(b)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(v)
}

func describe(name string, object storetest.Object) map[string]any {
	return map[string]any{
		"kind": "storage#object", "bucket": bucket, "name": name, "size": strconv.Itoa(len(object.Data)), "generation": "1",
		"metadata": object.Meta, "crc32c": crc(object.Data), "updated": "2026-01-02T03:04:05Z",
	}
}

func (f *fake) upload(w http.ResponseWriter, r *http.Request) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" || r.URL.Query().Get("uploadType") != "multipart" {
		fail(w, http.StatusBadRequest, "invalid", "no multipart upload")
		return
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	var meta struct {
		Name, CRC32C string
		Metadata     map[string]string
	}
	head, err := parts.NextPart()
	if err == nil {
		err = json.NewDecoder(head).Decode(&meta)
	}
	var data []byte
	if err == nil {
		var part *multipart.Part
		if part, err = parts.NextPart(); err == nil {
			data, err = io.ReadAll(part)
		}
	}
	if err != nil || meta.CRC32C != crc(data) {
		fail(w, http.StatusBadRequest, "invalid", fmt.Sprintf("broken upload: %v", err))
		return
	}
	object := storetest.Object{Data: data, Meta: meta.Metadata}
	if !f.Create(meta.Name, object, r.URL.Query().Get("ifGenerationMatch") == "0") {
		fail(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
		return
	}
	reply(w, describe(meta.Name, object))
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	names, more := f.List(r.URL.Query().Get("prefix"), r.URL.Query().Get("pageToken"))
	out := map[string]any{"kind": "storage#objects"}
	var items []map[string]any
	for _, name := range names {
		object, _ := f.Get(name)
		items = append(items, describe(name, object))
	}
	out["items"] = items
	if more {
		out["nextPageToken"] = names[len(names)-1]
	}
	reply(w, out)
}

var environment sync.Mutex

// open returns a store behind an endpoint. The SDK takes the endpoint from the environment when a client is made.
func open(t *testing.T, endpoint, rest string) (store.Store, error) {
	t.Helper()
	environment.Lock()
	defer environment.Unlock()
	must.NoError(t, os.Setenv("STORAGE_EMULATOR_HOST", endpoint))
	return store.Open("gs://"+bucket+rest, true)
}

// serve starts a fake, and credentials for it.
func serve(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.NoError(t, err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "spotter@example.iam.gserviceaccount.com", "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": server.URL + "/token",
		"project_id": "spotter",
	})
	must.NoError(t, err)
	file := filepath.Join(t.TempDir(), "account.json")
	must.NoError(t, os.WriteFile(file, account, 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	return f, server.URL
}

var prefixes atomic.Int64

func TestContract(t *testing.T) {
	_, endpoint := serve(t)
	storetest.Contract(t, func(t *testing.T) store.Store {
		s, err := open(t, endpoint, fmt.Sprintf("/some/prefix%d", prefixes.Add(1)))
		must.NoError(t, err)
		return s
	})
}

func TestNetwork(t *testing.T) {
	_, endpoint := serve(t)
	say := func(status int, reason, message string) storetest.Reply {
		return storetest.Reply{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: errorBody(status, reason, message)}
	}
	storetest.Network(t, endpoint, func(t *testing.T, endpoint string) store.Store {
		s, err := open(t, endpoint, fmt.Sprintf("/prefix%d?attempts=3&timeout=500ms", prefixes.Add(1)))
		must.NoError(t, err)
		return s
	}, map[error]storetest.Reply{
		store.ErrBucket:      say(http.StatusNotFound, "notFound", "The specified bucket does not exist."),
		store.ErrCredentials: say(http.StatusUnauthorized, "authError", "Invalid Credentials"),
		store.ErrDenied:      say(http.StatusForbidden, "forbidden", "does not have storage.objects.get access"),
		store.ErrClock:       say(http.StatusForbidden, "RequestTimeTooSkewed", "words"),
		store.ErrFull:        say(http.StatusForbidden, "quotaExceeded", "words"),
	})
}

// A key that was revoked is told from a network that does not work.
func TestRevokedKey(t *testing.T) {
	f, endpoint := serve(t)
	f.revoked.Store(true)
	s, err := open(t, endpoint, "?attempts=2")
	must.NoError(t, err)
	err = store.Probe(t.Context(), s)
	must.ErrorIs(t, err, store.ErrCredentials)
	must.ErrorContains(t, err, "set GOOGLE_APPLICATION_CREDENTIALS")
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none"))
	_, err := open(t, "http://127.0.0.1:1", "")
	must.ErrorIs(t, err, store.ErrCredentials)
	must.StrNotContains(t, err.Error(), "\n")
	must.ErrorContains(t, err, "set GOOGLE_APPLICATION_CREDENTIALS")
}

func TestReadme(t *testing.T) { storetest.Documented(t, "gs") }
