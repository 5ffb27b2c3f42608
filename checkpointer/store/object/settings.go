package object

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"nomad-spotter/checkpointer/store"
)

// Settings are what the URLs of all stores in buckets have in common.
type Settings struct {
	Attempts int           // of one call, at least 1
	Timeout  time.Duration // how long a store may say nothing
}

// Options returns the options that every vendor takes besides its own.
func Options() []store.Option {
	return []store.Option{
		{
			Name: "attempts", Type: "number from 1 to 100", Default: "8",
			Meaning: "how often a call is tried when what fails may pass (no answer, 408, 429, 5xx)",
			Check:   func(v string) error { _, err := attempts(v); return err },
		},
		{
			Name: "timeout", Type: "duration from 100ms to 1h", Default: "30s",
			Meaning: "how long the store may be silent; an upload has one second more for each 128 KiB",
			Check:   func(v string) error { _, err := timeout(v); return err },
		},
	}
}

func attempts(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 100 {
		return 0, fmt.Errorf("want a number from 1 to 100, as in attempts=8")
	}
	return n, nil
}

func timeout(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return 0, fmt.Errorf("want a duration from 100ms to 1h, as in timeout=30s")
	}
	return d, nil
}

// SettingsOf reads the options that Options describes.
func SettingsOf(l store.Location) (Settings, error) {
	n, err := attempts(l.Option("attempts"))
	if err != nil {
		return Settings{}, fmt.Errorf("option attempts: %w", err)
	}
	d, err := timeout(l.Option("timeout"))
	if err != nil {
		return Settings{}, fmt.Errorf("option timeout: %w", err)
	}
	return Settings{Attempts: n, Timeout: d}, nil
}

// Endpoint splits an endpoint, "HOST[:PORT]" or "http[s]://HOST[:PORT]", into host and whether it is to be reached without
// TLS.
func Endpoint(v string) (host string, plain bool, err error) {
	if !strings.Contains(v, "://") {
		v = "https://" + v
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(u.Path, "/") != "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", false, fmt.Errorf("want a host, as in endpoint=storage.example.net:9000, or http://HOST:PORT to go without TLS")
	}
	return u.Host, u.Scheme == "http", nil
}

// CheckEndpoint is Endpoint for store.Option.
func CheckEndpoint(v string) error {
	_, _, err := Endpoint(v)
	return err
}

// CheckBool accepts true and false.
func CheckBool(v string) error {
	if v != "true" && v != "false" {
		return fmt.Errorf("want true or false")
	}
	return nil
}

// Transport returns an HTTP transport that waits for no answer longer than the settings say. It does not unpack bodies:
// their length must be the object's.
func (s Settings) Transport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: min(10*time.Second, s.Timeout), KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   min(10*time.Second, s.Timeout),
		ResponseHeaderTimeout: s.Timeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          64,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true,
	}
}
