package object

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// Problem is what a store answered instead of doing what it was asked. The zero Problem stands for no answer: a broken
// connection, a time-out.
type Problem struct {
	Status  int    // HTTP status
	Code    string // the store's name for the error, possibly empty (an answer to HEAD has no body)
	Message string
}

// CodeCredentials is the code of a Problem in which no credentials could be had, so that the store was not even asked.
const CodeCredentials = "spotter:credentials"

// kind is what a problem means for us.
type kind int

const (
	transient kind = iota // may pass
	permanent             // will not
	notFound
	exists
	noBucket
	noRange // the range begins behind the object's end
	credentials
	denied
	clock
	full
)

// codes are the names that the vendors give to errors whose status does not say enough. Sources: the error tables of
// Amazon S3, MinIO, Azure Blob Storage, Alibaba Cloud OSS, Tencent COS, and the reasons of Google Cloud Storage's JSON API.
var codes = map[string]kind{
	CodeCredentials: credentials,

	"NoSuchKey": notFound, "BlobNotFound": notFound,
	"NoSuchBucket": noBucket, "ContainerNotFound": noBucket, "ContainerBeingDeleted": noBucket,
	"PreconditionFailed": exists, "conditionNotMet": exists, "ConditionNotMet": exists, "BlobAlreadyExists": exists,
	"FileAlreadyExists": exists, "ObjectAlreadyExists": exists,
	"InvalidRange": noRange, "requestedRangeNotSatisfiable": noRange,

	// Two creations at once: the loser is told to come again and finds the winner's object then.
	"ConditionalRequestConflict": transient, "OperationAborted": transient,
	"SlowDown": transient, "RequestTimeout": transient, "InternalError": transient, "ServiceUnavailable": transient,
	"ServerBusy": transient, "OperationTimedOut": transient, "Throttling": transient, "RequestLimitExceeded": transient,
	"rateLimitExceeded": transient, "userRateLimitExceeded": transient, "backendError": transient,

	"ExpiredToken": credentials, "ExpiredTokenException": credentials, "TokenRefreshRequired": credentials,
	"InvalidToken": credentials, "InvalidAccessKeyId": credentials, "SignatureDoesNotMatch": credentials,
	"InvalidSecurityToken": credentials, "SecurityTokenExpired": credentials, "SecurityTokenNotSupported": credentials,
	"InvalidSecurity": credentials, "AuthenticationFailed": credentials, "InvalidAuthenticationInfo": credentials,
	"NoAuthenticationInformation": credentials, "authError": credentials, "RequestIsExpired": credentials,

	"AccessDenied": denied, "AllAccessDisabled": denied, "AccountIsDisabled": denied, "AuthorizationFailure": denied,
	"AuthorizationPermissionMismatch": denied, "InsufficientAccountPermissions": denied, "forbidden": denied,

	"RequestTimeTooSkewed": clock,

	"XMinioStorageFull": full, "QuotaExceeded": full, "InsufficientCapacity": full, "InsufficientStorage": full,
	"quotaExceeded": full, "AccountLimitExceeded": full, "StorageLimitExceeded": full,
}

// Kind of a problem: by its code where that is known, else by its status.
func (p Problem) kind() kind {
	// Azure has one code for all of authentication and tells the clock's fault in the text alone.
	if strings.Contains(p.Message, "date header too old") || strings.Contains(p.Message, "Request date header") {
		return clock
	}
	if k, ok := codes[p.Code]; ok {
		return k
	}
	switch {
	case p.Status == 0, p.Status == http.StatusRequestTimeout, p.Status == http.StatusTooManyRequests:
		return transient
	case p.Status == http.StatusInsufficientStorage:
		return full
	case p.Status == http.StatusNotImplemented, p.Status == http.StatusHTTPVersionNotSupported:
		return permanent
	case p.Status >= http.StatusInternalServerError:
		return transient
	case p.Status == http.StatusNotFound && p.Code == "":
		return notFound
	case p.Status == http.StatusPreconditionFailed:
		return exists
	case p.Status == http.StatusRequestedRangeNotSatisfiable:
		return noRange
	case p.Status == http.StatusUnauthorized:
		return credentials
	case p.Status == http.StatusForbidden:
		return denied
	}
	return permanent
}

// kindOf classifies an error of the vendor's SDK, or of ours.
func (s *Store) kindOf(err error) kind {
	switch {
	case errors.Is(err, errSilent), errors.Is(err, errShort):
		return transient
	case errors.Is(err, store.ErrExists):
		return exists
	case errors.Is(err, errWrong):
		return permanent
	}
	return s.vendor.Problem(err).kind()
}

// explain adds to an error what it means and, where a person must act, the next step.
func (s *Store) explain(op, key string, err error) error {
	if err == nil {
		return nil
	}
	// What the caller ended is the caller's: the SDKs say it in many ways, not all of which unwrap.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s in %s: %w", op, key, s.url, err)
	}
	for _, known := range []error{store.ErrExists, store.ErrNotFound} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s %s in %s: %w", op, key, s.url, err)
		}
	}
	var meaning error
	switch s.kindOf(err) {
	case notFound:
		return fmt.Errorf("%s %s in %s: %w", op, key, s.url, store.ErrNotFound)
	case exists:
		return fmt.Errorf("%s %s in %s: %w", op, key, s.url, store.ErrExists)
	case noBucket:
		meaning = store.ErrBucket
	case credentials:
		return fmt.Errorf("%s %s in %s: %w: %s: %w", op, key, s.url, store.ErrCredentials, s.hint, err)
	case denied:
		meaning = store.ErrDenied
	case clock:
		meaning = store.ErrClock
	case full:
		meaning = store.ErrFull
	case transient, permanent, noRange:
		return fmt.Errorf("%s %s in %s: %w", op, key, s.url, err)
	}
	return fmt.Errorf("%s %s in %s: %w: %w", op, key, s.url, meaning, err)
}
