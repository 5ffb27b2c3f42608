package oss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"
)

// metadataService is the address of an ECS instance's metadata ("Instance metadata", "RAM roles of instances").
const metadataService = "http://100.100.100.200"

const metadataTimeout = 5 * time.Second

// early is how long before their end temporary credentials are replaced.
const early = 5 * time.Minute

// errCredentials marks a failure to find credentials.
var errCredentials = errors.New("no credentials")

// role gives the SDK credentials: those of the environment, else those of the instance's RAM role.
type role struct {
	env      func(string) string
	metadata string // http://HOST
	client   *http.Client

	mu    sync.Mutex
	until time.Time // when to ask again
	keys  keys
}

type keys struct{ id, secret, token string }

func (k keys) GetAccessKeyID() string     { return k.id }
func (k keys) GetAccessKeySecret() string { return k.secret }
func (k keys) GetSecurityToken() string   { return k.token }

// GetCredentials implements oss.CredentialsProvider with what refresh found.
func (r *role) GetCredentials() oss.Credentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys
}

// refresh makes sure that there are credentials that hold for some minutes.
func (r *role) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := r.env("OSS_ACCESS_KEY_ID"); id != "" {
		r.keys = keys{id, r.env("OSS_ACCESS_KEY_SECRET"), r.env("OSS_SESSION_TOKEN")}
		return nil
	}
	if time.Now().Before(r.until) { // credentials end by the clock
		return nil
	}
	k, end, err := r.ask(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: OSS_ACCESS_KEY_ID is not set, and of the instance's role: %w", errCredentials, err)
	}
	r.keys, r.until = k, end.Add(-early)
	return nil
}

// ask gets the credentials of the instance's role and when they end.
func (r *role) ask(ctx context.Context) (keys, time.Time, error) {
	token, err := r.request(ctx, http.MethodPut, "/latest/api/token", "X-aliyun-ecs-metadata-token-ttl-seconds", "60")
	if err != nil {
		return keys{}, time.Time{}, err
	}
	const path, header = "/latest/meta-data/ram/security-credentials/", "X-aliyun-ecs-metadata-token"
	name, err := r.request(ctx, http.MethodGet, path, header, token)
	if err != nil {
		return keys{}, time.Time{}, err
	}
	text, err := r.request(ctx, http.MethodGet, path+url.PathEscape(name), header, token)
	if err != nil {
		return keys{}, time.Time{}, err
	}
	var answer struct {
		Code, AccessKeyID, AccessKeySecret, SecurityToken string
		Expiration                                        time.Time
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return keys{}, time.Time{}, fmt.Errorf("read credentials of role %q: %w", name, err)
	}
	if answer.Code != "Success" || answer.AccessKeyID == "" {
		return keys{}, time.Time{}, fmt.Errorf("credentials of role %q: code %q", name, answer.Code)
	}
	return keys{answer.AccessKeyID, answer.AccessKeySecret, answer.SecurityToken}, answer.Expiration, nil
}

func (r *role) request(ctx context.Context, method, path, header, value string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.metadata+path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set(header, value)
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return strings.TrimSpace(string(text)), nil
}
