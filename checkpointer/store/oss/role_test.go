package oss

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// The credentials of an instance's role are used while they hold, and then asked for again.
func TestRole(t *testing.T) {
	asked, code, lasts := 0, "Success", time.Hour
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const path = "/latest/meta-data/ram/security-credentials/"
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			fmt.Fprint(w, "token")
		case r.Header.Get("X-aliyun-ecs-metadata-token") != "token":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == path:
			fmt.Fprintln(w, "trainer")
		case r.URL.Path == path+"trainer":
			asked++
			fmt.Fprintf(w, `{"Code":%q,"AccessKeyId":"id%d","AccessKeySecret":"secret","SecurityToken":"sts","Expiration":%q}`,
				code, asked, time.Now().Add(lasts).UTC().Format(time.RFC3339))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	env := map[string]string{}
	r := &role{env: func(name string) string { return env[name] }, metadata: server.URL, client: server.Client()}
	for range 3 {
		must.NoError(t, r.refresh(t.Context()))
		must.Eq(t, keys{"id1", "secret", "sts"}, r.GetCredentials().(keys))
	}
	r.until, lasts = time.Time{}, early/2 // these end soon
	for want := 2; want < 5; want++ {
		must.NoError(t, r.refresh(t.Context()))
		must.EqOp(t, fmt.Sprintf("id%d", want), r.GetCredentials().GetAccessKeyID())
	}
	code = "Failed"
	must.ErrorIs(t, r.refresh(t.Context()), errCredentials)
	env["OSS_ACCESS_KEY_ID"], env["OSS_ACCESS_KEY_SECRET"] = "own", "word" // the environment comes first
	must.NoError(t, r.refresh(t.Context()))
	must.Eq(t, keys{"own", "word", ""}, r.GetCredentials().(keys))
}

func TestRegion(t *testing.T) {
	const unset = ""
	for _, c := range []struct{ option, host, want string }{
		{unset, "oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"},
		{unset, "oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"},
		{unset, "oss-us-west-1.aliyuncs.com", "us-west-1"},
		{unset, "oss-accelerate.aliyuncs.com", ""},
		{unset, "storage.example.net:9000", ""},
		{"eu-central-1", "oss-cn-hangzhou.aliyuncs.com", "eu-central-1"},
	} {
		must.EqOp(t, c.want, region(c.option, c.host), must.Sprint(c))
	}
}
