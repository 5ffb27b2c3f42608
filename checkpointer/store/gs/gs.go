// Package gs adds stores in buckets of Google Cloud Storage, gs://BUCKET/PREFIX, to the programs that import it.
package gs

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/thanos-io/objstore/exthttp"
	"github.com/thanos-io/objstore/providers/gcs"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/object"
)

func init() { store.Register("gs", object.Options(), open) }

const hint = "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run gcloud auth application-default login, or give the instance a service account"

// ownerKey is the metadata by which a creation knows its object again.
const ownerKey = "spotter-put"

// whole bounds one request from its first byte to the last byte of its answer, for which objstore has no other setting.
const whole = time.Hour

func open(l store.Location) (store.Store, error) {
	settings, err := object.SettingsOf(l)
	if err != nil {
		return nil, err
	}
	bucket, err := gcs.NewBucketWithConfig(context.Background(), log.NewNopLogger(), gcs.Config{ //nolint:forbidigo // the client outlives every call
		Bucket: l.Bucket, MaxRetries: 1,
		HTTPConfig: exthttp.HTTPConfig{Transport: settings.Transport(), IdleConnTimeout: model.Duration(whole)},
	}, "spotter", nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", store.ErrCredentials, hint, err)
	}
	return object.New(object.Config{
		Location: l, Bucket: reads{bucket}, Vendor: vendor{bucket.Handle().Retryer(storage.WithPolicy(storage.RetryNever))}, Hint: hint, Settings: settings,
	}), nil
}

// reads asks again about an object that is not there: the SDK drops the text that tells a missing bucket apart.
type reads struct{ *gcs.Bucket }

func (r reads) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	body, err := r.Bucket.Get(ctx, name)
	return body, r.missing(ctx, name, err)
}

func (r reads) GetRange(ctx context.Context, name string, off, length int64) (io.ReadCloser, error) {
	body, err := r.Bucket.GetRange(ctx, name, off, length)
	return body, r.missing(ctx, name, err)
}

func (r reads) missing(ctx context.Context, name string, err error) error {
	if !errors.Is(err, storage.ErrObjectNotExist) {
		return err
	}
	if _, aerr := r.Attributes(ctx, name); aerr != nil {
		return aerr
	}
	return fmt.Errorf("%s appeared while it was asked for", name) // no answer of the store: asked for again
}

type vendor struct{ bucket *storage.BucketHandle }

var _ object.Vendor = vendor{}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Create puts with the precondition that there is no live version, ifGenerationMatch=0, in one request. The server checks
// the content's CRC-32C.
func (v vendor) Create(ctx context.Context, name string, body *io.SectionReader, owner string) error {
	ctx, cancel := context.WithCancel(ctx) // ends an upload that was begun and not finished
	defer cancel()
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, body); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	w := v.bucket.Object(name).If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
	w.ChunkSize = 0 // one request, not resumable, without a buffer of its own
	w.ContentType = "application/octet-stream"
	w.Metadata = map[string]string{ownerKey: owner}
	w.CRC32C, w.SendCRC32C = sum.Sum32(), true
	if _, err := io.Copy(w, body); err != nil {
		return errors.Join(w.Close(), err) // the answer, if there is one, is Close's
	}
	return w.Close()
}

func (v vendor) Owner(ctx context.Context, name string) (string, error) {
	attrs, err := v.bucket.Object(name).Attrs(ctx)
	if err != nil {
		return "", err
	}
	return attrs.Metadata[ownerKey], nil
}

func (v vendor) List(ctx context.Context, prefix string, f func(name string, size int64)) error {
	q := &storage.Query{Prefix: prefix}
	if err := q.SetAttrSelection([]string{"Name", "Size"}); err != nil {
		return err
	}
	it := v.bucket.Objects(ctx, q)
	for {
		attrs, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if err != nil {
			return err
		}
		f(attrs.Name, attrs.Size)
	}
}

func (v vendor) Problem(err error) object.Problem {
	var token *oauth2.RetrieveError
	if errors.As(err, &token) && token.Response != nil && token.Response.StatusCode < http.StatusInternalServerError {
		return object.Problem{Status: token.Response.StatusCode, Code: object.CodeCredentials, Message: err.Error()}
	}
	var e *googleapi.Error
	if !errors.As(err, &e) {
		return object.Problem{}
	}
	p := object.Problem{Status: e.Code, Message: e.Message}
	if len(e.Errors) > 0 {
		p.Code = e.Errors[0].Reason
	}
	// Reads speak the XML protocol, whose errors the SDK leaves as text.
	var text struct{ Code, Message string }
	var reply struct {
		Error struct{ Errors []googleapi.ErrorItem }
	}
	switch {
	case p.Code != "":
	case xml.Unmarshal([]byte(e.Body), &text) == nil:
		p.Code, p.Message = text.Code, text.Message
	case json.Unmarshal([]byte(e.Body), &reply) == nil && len(reply.Error.Errors) > 0:
		p.Code, p.Message = reply.Error.Errors[0].Reason, reply.Error.Errors[0].Message
	}
	// The JSON protocol has one reason for a missing object and a missing bucket.
	if p.Code == "notFound" {
		p.Code = "NoSuchKey"
		if errors.Is(err, storage.ErrBucketNotExist) || strings.Contains(e.Message, "bucket does not exist") {
			p.Code = "NoSuchBucket"
		}
	}
	return p
}
