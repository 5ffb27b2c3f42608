// Package azblob adds stores in containers of Azure Blob Storage, azblob://CONTAINER/PREFIX, to the programs that import
// it.
package azblob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/thanos-io/objstore/exthttp"
	"github.com/thanos-io/objstore/providers/azure"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/object"
)

func init() { store.Register("azblob", options(), open) }

const hint = "set AZURE_STORAGE_KEY or AZURE_STORAGE_CONNECTION_STRING, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or give the machine a managed identity"

// ownerKey is the metadata by which a creation knows its object again; names are those of C# identifiers.
const ownerKey = "spotterput"

const publicEndpoint = "blob.core.windows.net"

func options() []store.Option {
	own := []store.Option{
		{Name: "account", Type: "name", Default: "", Meaning: "the storage account; else AZURE_STORAGE_ACCOUNT says it"},
		{
			Name: "endpoint", Type: "host suffix, or URL of the blob service with the account in it", Default: publicEndpoint, Check: checkEndpoint,
			Meaning: "another cloud's suffix, to which the account is put in front, or the whole URL of a server; the latter needs AZURE_STORAGE_KEY",
		},
	}
	return append(own, object.Options()...)
}

func checkEndpoint(v string) error {
	if !strings.Contains(v, "://") {
		v = "https://" + v
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(v, ";") || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("want a suffix, as in endpoint=blob.core.chinacloudapi.cn, or a URL, as in endpoint=http://HOST:10000/ACCOUNT")
	}
	return nil
}

// access is what leads to an account: a connection string, or name, suffix and possibly a key.
type access struct{ connection, account, suffix, key string }

func accessOf(l store.Location, env func(string) string) (access, error) {
	a := access{account: l.Option("account"), suffix: l.Option("endpoint"), key: env("AZURE_STORAGE_KEY")}
	if a.account == "" {
		a.account = env("AZURE_STORAGE_ACCOUNT")
	}
	if c := env("AZURE_STORAGE_CONNECTION_STRING"); c != "" && a.key == "" {
		a.connection = c
		if name := between(c, "AccountName=", ";"); a.account == "" {
			a.account = name
		} else if name != "" && name != a.account {
			return access{}, fmt.Errorf("account %q and AccountName %q of AZURE_STORAGE_CONNECTION_STRING differ: unset the variable or leave option account out", a.account, name)
		}
	}
	if a.account == "" {
		return access{}, errors.New("no storage account: add account=NAME, or set AZURE_STORAGE_ACCOUNT")
	}
	if strings.Contains(a.suffix, "://") && a.connection == "" {
		if a.key == "" {
			return access{}, fmt.Errorf("endpoint %q is a URL and AZURE_STORAGE_KEY is not set: set it, or give a host suffix to use an identity", a.suffix)
		}
		a.connection = fmt.Sprintf("AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", a.account, a.key, strings.TrimSuffix(a.suffix, "/"))
	}
	if a.connection != "" {
		a.key = ""
	}
	return a, nil
}

// between returns what stands in s behind start and before end.
func between(s, start, end string) string {
	_, rest, _ := strings.Cut(s, start)
	out, _, _ := strings.Cut(rest, end)
	return out
}

func open(l store.Location) (store.Store, error) {
	settings, err := object.SettingsOf(l)
	if err != nil {
		return nil, err
	}
	a, err := accessOf(l, os.Getenv)
	if err != nil {
		return nil, err
	}
	transport := settings.Transport()
	conf := azure.DefaultConfig
	conf.StorageAccountName, conf.StorageAccountKey, conf.StorageConnectionString = a.account, a.key, a.connection
	conf.ContainerName, conf.Endpoint, conf.StorageCreateContainer = l.Bucket, a.suffix, false
	// objstore's client cannot be told not to try again; once, soon, does no harm to reads.
	conf.PipelineConfig = azure.PipelineConfig{MaxTries: 1, RetryDelay: model.Duration(10 * time.Millisecond), MaxRetryDelay: model.Duration(100 * time.Millisecond)}
	conf.HTTPConfig = exthttp.HTTPConfig{Transport: transport}
	bucket, err := azure.NewBucketWithConfig(log.NewNopLogger(), conf, "spotter", nil)
	if err != nil {
		return nil, err
	}
	client, err := a.client(l.Bucket, transport)
	if err != nil {
		return nil, err
	}
	return object.New(object.Config{Location: l, Bucket: bucket, Vendor: vendor{client}, Hint: hint, Settings: settings}), nil
}

// client returns a client that tries nothing twice.
func (a access) client(name string, transport http.RoundTripper) (*container.Client, error) {
	opts := &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry: policy.RetryOptions{MaxRetries: -1}, Transport: &http.Client{Transport: transport},
	}}
	if a.connection != "" {
		return container.NewClientFromConnectionString(a.connection, name, opts)
	}
	address := fmt.Sprintf("https://%s.%s/%s", a.account, a.suffix, name)
	if a.key != "" {
		cred, err := container.NewSharedKeyCredential(a.account, a.key)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(address, cred, opts)
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return container.NewClient(address, cred, opts)
}

type vendor struct{ client *container.Client }

var _ object.Vendor = vendor{}

// Create puts with If-None-Match: * in one request ("Specifying conditional headers for Blob service operations"). The
// server checks the content's CRC-64.
func (v vendor) Create(ctx context.Context, name string, body *io.SectionReader, owner string) error {
	_, err := v.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(body), &blockblob.UploadOptions{
		Metadata:                map[string]*string{ownerKey: &owner},
		TransactionalValidation: blob.TransferValidationTypeComputeCRC64(),
		AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
		},
	})
	return err
}

func (v vendor) Owner(ctx context.Context, name string) (string, error) {
	props, err := v.client.NewBlobClient(name).GetProperties(ctx, nil)
	if err != nil {
		return "", err
	}
	for key, value := range props.Metadata { // as headers, in whatever case
		if strings.EqualFold(key, ownerKey) && value != nil {
			return *value, nil
		}
	}
	return "", nil
}

func (v vendor) List(ctx context.Context, prefix string, f func(name string, size int64)) error {
	pages := v.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		if page.Segment == nil {
			return errors.New("the listing has no segment")
		}
		for _, b := range page.Segment.BlobItems {
			if b == nil || b.Name == nil || b.Properties == nil || b.Properties.ContentLength == nil {
				return errors.New("the listing has a blob without a name or a length")
			}
			f(*b.Name, *b.Properties.ContentLength)
		}
	}
	return nil
}

func (v vendor) Problem(err error) object.Problem {
	var auth *azidentity.AuthenticationFailedError
	if errors.As(err, &auth) || strings.Contains(err.Error(), "DefaultAzureCredential: failed to acquire a token") {
		return object.Problem{Status: http.StatusUnauthorized, Code: object.CodeCredentials, Message: err.Error()}
	}
	var e *azcore.ResponseError
	if !errors.As(err, &e) {
		return object.Problem{}
	}
	return object.Problem{Status: e.StatusCode, Code: e.ErrorCode, Message: e.Error()}
}
