// Package oss adds stores in buckets of Alibaba Cloud OSS, oss://BUCKET/PREFIX, to the programs that import it.
//
// objstore's provider for OSS takes neither a context nor temporary credentials, which an instance's role gives, and reads
// a range only after asking for the object's size. Reads therefore use the vendor's SDK here, behind the same methods.
package oss

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/clientutil"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/object"
)

func init() { store.Register("oss", options(), open) }

const hint = "set OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and, for temporary ones, OSS_SESSION_TOKEN, or give the instance a RAM role"

// ownerKey is the metadata, x-oss-meta-spotter-put, by which a creation knows its object again.
const ownerKey = "spotter-put"

func options() []store.Option {
	own := []store.Option{
		{
			Name: "endpoint", Type: "HOST[:PORT], or http://HOST:PORT to go without TLS", Default: "", Check: object.CheckEndpoint,
			Meaning: "the region's server, as oss-cn-hangzhou.aliyuncs.com or, inside the region, oss-cn-hangzhou-internal.aliyuncs.com; required",
		},
		{Name: "region", Type: "name", Default: "", Meaning: "the region that requests are signed for, as cn-hangzhou; else the one in the endpoint's name; without any they bear the older signature, version 1"},
	}
	return append(own, object.Options()...)
}

// hostRegion finds the region in a public or internal host name of OSS.
var hostRegion = regexp.MustCompile(`^oss-([a-z]+-[a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com$`)

// region returns the region to sign for; nothing if it is not known.
func region(option, host string) string {
	if option != "" {
		return option
	}
	if m := hostRegion.FindStringSubmatch(host); m != nil {
		return m[1]
	}
	return ""
}

func open(l store.Location) (store.Store, error) {
	settings, err := object.SettingsOf(l)
	if err != nil {
		return nil, err
	}
	if l.Option("endpoint") == "" {
		return nil, errors.New("option endpoint is missing: add endpoint=oss-REGION.aliyuncs.com")
	}
	host, plain, err := object.Endpoint(l.Option("endpoint"))
	if err != nil {
		return nil, fmt.Errorf("option endpoint: %w", err)
	}
	address := "https://" + host
	if plain {
		address = "http://" + host
	}
	transport := settings.Transport()
	keys := &role{env: os.Getenv, metadata: metadataService, client: &http.Client{Transport: transport, Timeout: metadataTimeout}}
	opts := []oss.ClientOption{
		oss.HTTPClient(&http.Client{Transport: transport}), oss.SetCredentialsProvider(keys),
		oss.EnableCRC(false), // the server checks the MD5 before it creates the object
	}
	if r := region(l.Option("region"), host); r != "" {
		opts = append(opts, oss.AuthVersion(oss.AuthV4), oss.Region(r))
	}
	client, err := oss.New(address, "", "", opts...)
	if err != nil {
		return nil, err
	}
	bucket, err := client.Bucket(l.Bucket)
	if err != nil {
		return nil, err
	}
	v := &vendor{bucket: bucket, keys: keys}
	return object.New(object.Config{Location: l, Bucket: v, Vendor: v, Hint: hint, Settings: settings}), nil
}

type vendor struct {
	bucket *oss.Bucket
	keys   *role
}

var (
	_ object.Bucket = (*vendor)(nil)
	_ object.Vendor = (*vendor)(nil)
)

// Get implements object.Bucket.
func (v *vendor) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return v.read(ctx, name)
}

// GetRange implements object.Bucket. With the standard behaviour a range behind the end is refused instead of answered
// with the whole object.
func (v *vendor) GetRange(ctx context.Context, name string, off, length int64) (io.ReadCloser, error) {
	return v.read(ctx, name, oss.Range(off, off+length-1), oss.RangeBehavior("standard"))
}

func (v *vendor) read(ctx context.Context, name string, opts ...oss.Option) (io.ReadCloser, error) {
	if err := v.keys.refresh(ctx); err != nil {
		return nil, err
	}
	r, err := v.bucket.DoGetObject(&oss.GetObjectRequest{ObjectKey: name}, append(opts, oss.WithContext(ctx)))
	if err != nil {
		return nil, err
	}
	size, err := clientutil.ParseContentLength(r.Response.Headers)
	if err != nil {
		return nil, errors.Join(err, r.Response.Close())
	}
	return objstore.ObjectSizerReadCloser{ReadCloser: r.Response, Size: func() (int64, error) { return size, nil }}, nil
}

// Attributes implements object.Bucket.
func (v *vendor) Attributes(ctx context.Context, name string) (objstore.ObjectAttributes, error) {
	h, err := v.head(ctx, name)
	if err != nil {
		return objstore.ObjectAttributes{}, err
	}
	size, err := clientutil.ParseContentLength(h)
	return objstore.ObjectAttributes{Size: size}, err
}

func (v *vendor) head(ctx context.Context, name string) (http.Header, error) {
	if err := v.keys.refresh(ctx); err != nil {
		return nil, err
	}
	return v.bucket.GetObjectDetailedMeta(name, oss.WithContext(ctx))
}

// Delete implements object.Bucket.
func (v *vendor) Delete(ctx context.Context, name string) error {
	if err := v.keys.refresh(ctx); err != nil {
		return err
	}
	return v.bucket.DeleteObject(name, oss.WithContext(ctx))
}

// Create implements object.Vendor with x-oss-forbid-overwrite ("PutObject"), which a bucket with versioning ignores. The
// server checks the content's MD5.
func (v *vendor) Create(ctx context.Context, name string, body *io.SectionReader, owner string) error {
	if err := v.keys.refresh(ctx); err != nil {
		return err
	}
	h := md5.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var content io.Reader // none for an empty object, which would go without a length otherwise
	if body.Size() > 0 {
		content = &io.LimitedReader{R: body, N: body.Size()} // a type of which the SDK knows the length
	}
	return v.bucket.PutObject(name, content,
		oss.WithContext(ctx), oss.ForbidOverWrite(true), oss.Meta(ownerKey, owner),
		oss.ContentMD5(base64.StdEncoding.EncodeToString(h.Sum(nil))), oss.ContentType("application/octet-stream"))
}

// Owner implements object.Vendor.
func (v *vendor) Owner(ctx context.Context, name string) (string, error) {
	h, err := v.head(ctx, name)
	return h.Get("X-Oss-Meta-" + ownerKey), err
}

// List implements object.Vendor.
func (v *vendor) List(ctx context.Context, prefix string, f func(name string, size int64)) error {
	for token := ""; ; {
		if err := v.keys.refresh(ctx); err != nil {
			return err
		}
		opts := []oss.Option{oss.WithContext(ctx), oss.Prefix(prefix), oss.MaxKeys(1000)}
		if token != "" {
			opts = append(opts, oss.ContinuationToken(token))
		}
		page, err := v.bucket.ListObjectsV2(opts...)
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			f(o.Key, o.Size)
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == token {
			return errors.New("the listing does not go on")
		}
		token = page.NextContinuationToken
	}
}

// Problem implements object.Vendor.
func (v *vendor) Problem(err error) object.Problem {
	if errors.Is(err, errCredentials) {
		return object.Problem{Status: http.StatusUnauthorized, Code: object.CodeCredentials, Message: err.Error()}
	}
	var e oss.ServiceError
	if errors.As(err, &e) {
		return object.Problem{Status: e.StatusCode, Code: e.Code, Message: e.Message}
	}
	// An answer whose body is not OSS's own, as of a proxy on the way: the SDK has the status in the text alone.
	if _, rest, ok := strings.Cut(err.Error(), "invalid response body, status = "); ok {
		var status int
		if _, serr := fmt.Sscanf(rest, "%d", &status); serr == nil {
			return object.Problem{Status: status, Message: err.Error()}
		}
	}
	return object.Problem{}
}
