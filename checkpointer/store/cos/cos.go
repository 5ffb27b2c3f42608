// Package cos adds stores in buckets of Tencent Cloud COS, cos://BUCKET-APPID/PREFIX, to the programs that import it.
package cos

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/go-kit/log"
	"github.com/tencentyun/cos-go-sdk-v5"
	"github.com/thanos-io/objstore/exthttp"
	objcos "github.com/thanos-io/objstore/providers/cos"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/object"
)

func init() { store.Register("cos", options(), open) }

const hint = "set COS_SECRET_ID, COS_SECRET_KEY and, for temporary ones, COS_SESSION_TOKEN, or give the instance a role"

// ownerKey is the metadata, x-cos-meta-spotter-put, by which a creation knows its object again.
const ownerKey = "x-cos-meta-spotter-put"

func options() []store.Option {
	own := []store.Option{
		{Name: "region", Type: "name", Default: "", Meaning: "the bucket's region, as ap-guangzhou; required unless endpoint is given"},
		{
			Name: "endpoint", Type: "HOST[:PORT] of the bucket, or http://HOST:PORT to go without TLS", Default: "", Check: object.CheckEndpoint,
			Meaning: "the bucket's own host, if it is not BUCKET-APPID.cos.REGION.myqcloud.com",
		},
	}
	return append(own, object.Options()...)
}

// address returns the URL of the bucket.
func address(l store.Location) (string, error) {
	region, endpoint := l.Option("region"), l.Option("endpoint")
	switch {
	case region == "" && endpoint == "":
		return "", errors.New("options region and endpoint are both missing: add region=NAME, as ap-guangzhou")
	case region != "" && endpoint != "":
		return "", fmt.Errorf("options region, %q, and endpoint, %q, are both given: leave one out", region, endpoint)
	case endpoint == "":
		u, err := cos.NewBucketURL(l.Bucket, region, true)
		if err != nil {
			return "", fmt.Errorf("bucket %q, region %q: %w: want BUCKET-APPID and a region as ap-guangzhou", l.Bucket, region, err)
		}
		return u.String(), nil
	}
	host, plain, err := object.Endpoint(endpoint)
	if err != nil {
		return "", fmt.Errorf("option endpoint: %w", err)
	}
	if plain {
		return "http://" + host, nil
	}
	return "https://" + host, nil
}

func open(l store.Location) (store.Store, error) {
	settings, err := object.SettingsOf(l)
	if err != nil {
		return nil, err
	}
	bucketURL, err := address(l)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, err
	}
	sign := &signer{env: os.Getenv, role: &cos.CVMCredentialTransport{}, next: settings.Transport()}
	// objstore wants keys when it is set up and signs with them; the signer signs anew.
	bucket, err := objcos.NewBucketWithConfig(log.NewNopLogger(), objcos.Config{
		Bucket: l.Bucket, Endpoint: bucketURL, SecretId: "none", SecretKey: "none", MaxRetries: 1,
		HTTPConfig: exthttp.HTTPConfig{Transport: sign},
	}, "spotter", nil)
	if err != nil {
		return nil, err
	}
	client := cos.NewClient(&cos.BaseURL{BucketURL: u}, &http.Client{Transport: sign})
	client.Conf.RetryOpt.Count = 1
	client.Conf.EnableCRC = false // the server checks the MD5 before it creates the object
	return object.New(object.Config{Location: l, Bucket: bucket, Vendor: vendor{client}, Hint: hint, Settings: settings}), nil
}

// errCredentials marks a failure to find credentials.
var errCredentials = errors.New("no credentials")

// signer signs requests with the environment's credentials, else with those of the instance's role.
type signer struct {
	env  func(string) string
	role interface {
		GetCredential() (id, key, token string, err error)
	}
	next http.RoundTripper
}

// lasts is for how long a signature is good.
const lasts = time.Hour

func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	id, key, token := s.env("COS_SECRET_ID"), s.env("COS_SECRET_KEY"), s.env("COS_SESSION_TOKEN")
	if id == "" {
		var err error
		if id, key, token, err = s.role.GetCredential(); err != nil {
			return nil, fmt.Errorf("%w: COS_SECRET_ID is not set, and of the instance's role: %w", errCredentials, err)
		}
	}
	if id == "" || key == "" {
		return nil, fmt.Errorf("%w: COS_SECRET_KEY is not set", errCredentials)
	}
	req = req.Clone(req.Context())
	req.Header.Del("Authorization")
	cos.AddAuthorizationHeader(id, key, token, req, cos.NewAuthTime(lasts))
	return s.next.RoundTrip(req)
}

type vendor struct{ client *cos.Client }

var _ object.Vendor = vendor{}

// Create puts with x-cos-forbid-overwrite ("PUT Object"), which a bucket with versioning ignores. The server checks the
// content's MD5.
func (v vendor) Create(ctx context.Context, name string, body *io.SectionReader, owner string) error {
	h := md5.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := v.client.Object.Put(ctx, name, body, &cos.ObjectPutOptions{ObjectPutHeaderOptions: &cos.ObjectPutHeaderOptions{
		ContentType: "application/octet-stream", ContentLength: body.Size(), ContentMD5: base64.StdEncoding.EncodeToString(h.Sum(nil)),
		XCosMetaXXX: &http.Header{ownerKey: {owner}}, XOptionHeader: &http.Header{"x-cos-forbid-overwrite": {"true"}},
	}})
	return err
}

func (v vendor) Owner(ctx context.Context, name string) (string, error) {
	resp, err := v.client.Object.Head(ctx, name, nil)
	if err != nil {
		return "", err
	}
	return resp.Header.Get(ownerKey), nil
}

func (v vendor) List(ctx context.Context, prefix string, f func(name string, size int64)) error {
	for marker := ""; ; {
		page, _, err := v.client.Bucket.Get(ctx, &cos.BucketGetOptions{Prefix: prefix, MaxKeys: 1000, Marker: marker})
		if err != nil {
			return err
		}
		for _, o := range page.Contents {
			f(o.Key, o.Size)
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextMarker == "" || page.NextMarker == marker {
			return errors.New("the listing does not go on")
		}
		marker = page.NextMarker
	}
}

func (v vendor) Problem(err error) object.Problem {
	if errors.Is(err, errCredentials) {
		return object.Problem{Status: http.StatusUnauthorized, Code: object.CodeCredentials, Message: err.Error()}
	}
	var e *cos.ErrorResponse
	if !errors.As(err, &e) {
		return object.Problem{}
	}
	p := object.Problem{Code: e.Code, Message: e.Message}
	if e.Response != nil {
		p.Status = e.Response.StatusCode
	}
	return p
}
