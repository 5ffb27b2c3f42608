package s3_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	_ "nomad-spotter/checkpointer/store/s3"
	"nomad-spotter/checkpointer/store/storetest"
)

const (
	user, password = "spotter", "secret-of-spotter"
	bucket         = "spotter-test"
)

// endpoint is the URL of the running versitygw; empty where there is none.
var endpoint string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run starts versitygw on a free port, with a bucket, for all tests.
func run(m *testing.M) int {
	bin, err := exec.LookPath("versitygw")
	if err != nil {
		cache := os.Getenv("SPOTTER_CACHE")
		if cache == "" {
			dir, err := os.UserCacheDir()
			check(err)
			cache = filepath.Join(dir, "spotter")
		}
		bin = filepath.Join(cache, "bin", "versitygw")
		if _, err := os.Stat(bin); err != nil {
			return m.Run()
		}
	}
	dir, err := os.MkdirTemp("", "spotter-s3-")
	check(err)
	defer os.RemoveAll(dir)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": filepath.Join(dir, "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "none"),
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
	} {
		check(os.Setenv(name, value))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	addr := l.Addr().String()
	check(l.Close())
	for _, name := range []string{"root", "sidecar"} {
		check(os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	cmd := exec.Command(bin, "--port", addr, "--access", user, "--secret", password, "--quiet", "posix",
		"--sidecar", filepath.Join(dir, "sidecar"), filepath.Join(dir, "root"))
	cmd.Stderr = os.Stderr
	check(cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	client, err := minio.New(addr, &minio.Options{Creds: credentials.NewStaticV4(user, password, "")})
	check(err)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := client.MakeBucket(context.Background(), bucket, minio.MakeBucketOptions{})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			check(fmt.Errorf("make a bucket on versitygw: %w", err))
		}
	}
	endpoint = "http://" + addr
	return m.Run()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// server returns the URL of versitygw; the test is skipped where there is none.
func server(t *testing.T) string {
	t.Helper()
	if endpoint == "" {
		t.Skip("no versitygw on PATH nor in the cache of engines: run make engines")
	}
	return endpoint
}

var prefixes atomic.Int64

// open returns a store under a prefix of its own.
func open(t *testing.T, endpoint, options string) store.Store {
	t.Helper()
	s, err := store.Open(fmt.Sprintf("s3://%s/some/prefix%d?path_style=true&endpoint=%s%s", bucket, prefixes.Add(1), endpoint, options), true)
	must.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	endpoint := server(t)
	storetest.Contract(t, func(t *testing.T) store.Store { return open(t, endpoint, "") })
	t.Run("a bucket without a prefix", func(t *testing.T) {
		s, err := store.Open("s3://"+bucket+"?path_style=true&endpoint="+endpoint, false)
		must.NoError(t, err)
		must.NoError(t, store.Probe(t.Context(), s))
		must.EqOp(t, "s3://"+bucket+"?endpoint="+"http%3A%2F%2F"+endpoint[len("http://"):len(endpoint)-6]+"%3A"+endpoint[len(endpoint)-5:]+"&path_style=true", s.URL())
	})
}

func TestNetwork(t *testing.T) {
	code := func(status int, code string) storetest.Reply {
		return storetest.Reply{
			Status: status, Header: http.Header{"Content-Type": {"application/xml"}},
			Body: `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>words</Message></Error>`,
		}
	}
	storetest.Network(t, server(t), func(t *testing.T, endpoint string) store.Store {
		return open(t, endpoint, "&attempts=3&timeout=500ms")
	}, map[error]storetest.Reply{
		store.ErrBucket:      code(http.StatusNotFound, "NoSuchBucket"),
		store.ErrCredentials: code(http.StatusBadRequest, "ExpiredToken"),
		store.ErrDenied:      code(http.StatusForbidden, "AccessDenied"),
		store.ErrClock:       code(http.StatusForbidden, "RequestTimeTooSkewed"),
		store.ErrFull:        code(http.StatusInsufficientStorage, "XMinioStorageFull"),
	})
}

// Without credentials nothing is sent unsigned.
func TestNoCredentials(t *testing.T) {
	s := open(t, server(t), "&attempts=2")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	err := store.Probe(context.Background(), s)
	must.ErrorIs(t, err, store.ErrCredentials)
	must.ErrorContains(t, err, "set AWS_ACCESS_KEY_ID")
}

func TestReadme(t *testing.T) { storetest.Documented(t, "s3") }

// What is asked for in the URL is asked of the server.
func TestHeaders(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", user)
	t.Setenv("AWS_SECRET_ACCESS_KEY", password)
	for _, c := range []struct{ options, region, sse, key, err string }{
		{options: "", region: "us-east-1"},
		{options: "&region=eu-central-1", region: "eu-central-1"},
		{options: "&sse=AES256", region: "us-east-1", sse: "AES256"},
		{options: "&sse=aws:kms&kms_key=arn:aws:kms:1", region: "us-east-1", sse: "aws:kms", key: "arn:aws:kms:1"},
		{options: "&sse=aws:kms", err: "option kms_key is missing: add kms_key=ARN"},
		{options: "&sse=AES256&kms_key=a", err: `option kms_key is "a" and option sse is "AES256"`},
		{options: "&kms_key=a", err: `option kms_key is "a" and option sse is ""`},
		{options: "&sse=none", err: `is "none": want sse=AES256 or sse=aws:kms`},
		{options: "&path_style=yes", err: `is "yes": want true or false`},
	} {
		t.Run(c.options, func(t *testing.T) {
			var head http.Header
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { head = r.Header.Clone() }))
			t.Cleanup(server.Close)
			s, err := store.Open("s3://bucket?endpoint="+server.URL+c.options, true)
			if c.err != "" {
				must.ErrorContains(t, err, c.err)
				return
			}
			must.NoError(t, err)
			_, err = s.Put(t.Context(), "a", strings.NewReader("x"))
			must.NoError(t, err)
			must.EqOp(t, "*", head.Get("If-None-Match"))
			must.EqOp(t, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", head.Get("X-Amz-Content-Sha256"))
			must.StrContains(t, head.Get("Authorization"), "/"+c.region+"/s3/aws4_request")
			must.EqOp(t, c.sse, head.Get("X-Amz-Server-Side-Encryption"))
			must.EqOp(t, c.key, head.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"))
			must.NotEq(t, "", head.Get("X-Amz-Meta-Spotter-Put"))
		})
	}
}
