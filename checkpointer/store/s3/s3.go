// Package s3 adds stores in buckets of Amazon S3 and of servers that speak its protocol, s3://BUCKET/PREFIX, to the
// programs that import it.
package s3

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/go-kit/log"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/thanos-io/objstore/exthttp"
	objs3 "github.com/thanos-io/objstore/providers/s3"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/object"
)

func init() { store.Register("s3", options(), open) }

const hint = "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary ones, AWS_SESSION_TOKEN, or AWS_PROFILE, or give the instance a role"

// ownerKey is the metadata, x-amz-meta-spotter-put, by which a creation knows its object again.
const ownerKey = "Spotter-Put"

func options() []store.Option {
	own := []store.Option{
		{
			Name: "endpoint", Type: "HOST[:PORT], or http://HOST:PORT to go without TLS", Default: "s3.amazonaws.com",
			Meaning: "the server, if it is not Amazon's", Check: object.CheckEndpoint,
		},
		{Name: "region", Type: "name", Default: "", Meaning: "the bucket's region, for which requests are signed; else AWS_REGION or AWS_DEFAULT_REGION, else us-east-1"},
		{
			Name: "path_style", Type: "true or false", Default: "false", Check: object.CheckBool,
			Meaning: "name the bucket in the path and not in the host name; needed by most servers on a host of one's own",
		},
		{
			Name: "sse", Type: "AES256 or aws:kms", Default: "", Check: checkSSE,
			Meaning: "server-side encryption that is asked for; without it the bucket's own rule holds",
		},
		{Name: "kms_key", Type: "ARN or id of a key", Default: "", Meaning: "the key of sse=aws:kms"},
	}
	return append(own, object.Options()...)
}

func checkSSE(v string) error {
	if v != "AES256" && v != "aws:kms" {
		return fmt.Errorf("want sse=AES256 or sse=aws:kms")
	}
	return nil
}

func open(l store.Location) (store.Store, error) {
	settings, err := object.SettingsOf(l)
	if err != nil {
		return nil, err
	}
	host, plain, err := object.Endpoint(l.Option("endpoint"))
	if err != nil {
		return nil, fmt.Errorf("option endpoint: %w", err)
	}
	sse, err := encryption(l.Option("sse"), l.Option("kms_key"))
	if err != nil {
		return nil, err
	}
	lookup, minioLookup := objs3.AutoLookup, minio.BucketLookupAuto
	if l.Option("path_style") == "true" {
		lookup, minioLookup = objs3.PathLookup, minio.BucketLookupPath
	}
	region := cmp.Or(l.Option("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1")
	transport := settings.Transport()
	bucket, err := objs3.NewBucketWithConfig(log.NewNopLogger(), objs3.Config{
		Bucket: l.Bucket, Endpoint: host, Region: region, Insecure: plain, AWSSDKAuth: true,
		BucketLookupType: lookup, MaxRetries: 1,
		HTTPConfig: exthttp.HTTPConfig{Transport: transport},
	}, "spotter", nil)
	if err != nil {
		return nil, err
	}
	client, err := minio.NewCore(host, &minio.Options{
		Creds: credentials.New(&auth{inner: objs3.AWSSDKAuth{Region: region}}), Secure: !plain, Region: region,
		Transport: transport, BucketLookup: minioLookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, err
	}
	return object.New(object.Config{
		Location: l, Bucket: bucket, Vendor: &vendor{client, l.Bucket, sse}, Hint: hint, Settings: settings,
	}), nil
}

// encryption returns the server-side encryption of new objects. To read them it need not be named.
func encryption(kind, key string) (encrypt.ServerSide, error) {
	switch {
	case kind == "aws:kms" && key == "":
		return nil, errors.New("option sse is aws:kms and option kms_key is missing: add kms_key=ARN")
	case kind != "aws:kms" && key != "":
		return nil, fmt.Errorf("option kms_key is %q and option sse is %q: kms_key needs sse=aws:kms", key, kind)
	case kind == "aws:kms":
		return encrypt.NewSSEKMS(key, map[string]string{})
	case kind == "AES256":
		return encrypt.NewSSE(), nil
	}
	return nil, nil
}

// errCredentials marks a failure to find credentials.
var errCredentials = errors.New("no credentials")

// auth is the AWS SDK's chain of credentials; unlike minio's own it does not go on without any.
type auth struct{ inner objs3.AWSSDKAuth }

func (a *auth) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := a.inner.RetrieveWithCredContext(cc)
	if err != nil {
		return v, fmt.Errorf("%w: %w", errCredentials, err)
	}
	return v, nil
}

func (a *auth) Retrieve() (credentials.Value, error) { return a.RetrieveWithCredContext(nil) }

func (a *auth) IsExpired() bool { return a.inner.IsExpired() }

type vendor struct {
	client *minio.Core
	bucket string
	sse    encrypt.ServerSide
}

var _ object.Vendor = (*vendor)(nil)

// Create puts with If-None-Match: * (Amazon S3 User Guide, "Conditional writes"). The request is signed with the
// content's SHA-256, which the server checks: what arrives damaged is refused.
func (v *vendor) Create(ctx context.Context, name string, body *io.SectionReader, owner string) error {
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	opts := minio.PutObjectOptions{
		UserMetadata: map[string]string{ownerKey: owner}, ServerSideEncryption: v.sse, DisableContentSha256: true,
		ContentType: "application/octet-stream",
	}
	opts.SetMatchETagExcept("*")
	_, err := v.client.PutObject(ctx, v.bucket, name, body, body.Size(), "", hex.EncodeToString(h.Sum(nil)), opts)
	return err
}

func (v *vendor) Owner(ctx context.Context, name string) (string, error) {
	info, err := v.client.StatObject(ctx, v.bucket, name, minio.StatObjectOptions{})
	if err != nil {
		return "", err
	}
	return info.UserMetadata[ownerKey], nil
}

func (v *vendor) List(ctx context.Context, prefix string, f func(name string, size int64)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the lister when a page fails
	defer cancel()
	for o := range v.client.Client.ListObjects(ctx, v.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		f(o.Key, o.Size)
	}
	return ctx.Err()
}

func (v *vendor) Problem(err error) object.Problem {
	if errors.Is(err, errCredentials) {
		return object.Problem{Status: http.StatusUnauthorized, Code: object.CodeCredentials, Message: err.Error()}
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return object.Problem{}
	}
	return object.Problem{Status: r.StatusCode, Code: r.Code, Message: r.Message}
}
