package store

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Location is a parsed store URL.
type Location struct {
	Scheme string
	Bucket string // bucket or container; empty for file
	Path   string // file: a clean absolute path; else the prefix of all keys, without slashes at its ends, possibly empty
	given  map[string]string
	all    map[string]string
}

// Option describes one query parameter of a store URL.
type Option struct {
	Name    string
	Type    string // for people
	Default string // in words where it is not a value
	Meaning string
	Check   func(value string) error // nil: any value that is not empty
}

// Opener opens the store at a location whose options have been checked. It does not talk to the store.
type Opener func(l Location) (Store, error)

type scheme struct {
	options []Option
	open    Opener
}

var (
	registryMu sync.RWMutex
	registry   = map[string]scheme{}
)

// known lists the schemes that exist and the package that brings each.
var known = map[string]string{
	"s3":     "nomad-spotter/checkpointer/store/s3",
	"gs":     "nomad-spotter/checkpointer/store/gs",
	"azblob": "nomad-spotter/checkpointer/store/azblob",
	"oss":    "nomad-spotter/checkpointer/store/oss",
	"cos":    "nomad-spotter/checkpointer/store/cos",
}

// Register makes a scheme known to Parse and Open. A package of a vendor calls it when it is imported, so that a program
// holds the SDKs of just the stores that it imports. It panics when a scheme is registered twice.
func Register(name string, options []Option, open Opener) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, ok := registry[name]; ok || name == "file" {
		panic("store: scheme " + name + " registered twice")
	}
	registry[name] = scheme{options, open}
}

// Schemes returns the schemes that this program can open, sorted.
func Schemes() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return slices.Sorted(maps.Keys(withFile(registry)))
}

func withFile(m map[string]scheme) map[string]scheme {
	out := maps.Clone(m)
	out["file"] = scheme{}
	return out
}

// Options returns the options of a scheme, in the order in which it was registered with them.
func Options(name string) []Option {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return slices.Clone(registry[name].options)
}

// Option returns the value of an option: as given in the URL, else its default.
func (l Location) Option(name string) string { return l.all[name] }

// String returns the URL of the location, with the options that were given.
func (l Location) String() string {
	if l.Scheme == "file" {
		return (&url.URL{Scheme: "file", Path: l.Path}).String()
	}
	u := url.URL{Scheme: l.Scheme, Host: l.Bucket}
	if l.Path != "" {
		u.Path = "/" + l.Path
	}
	q := url.Values{}
	for name, value := range l.given {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Parse splits a store URL into scheme and path; the path of a store in a bucket is "BUCKET" or "BUCKET/PREFIX". It
// accepts what ParseLocation does.
func Parse(raw string) (scheme, path string, err error) {
	l, err := ParseLocation(raw)
	if err != nil {
		return "", "", err
	}
	if l.Bucket == "" {
		return l.Scheme, l.Path, nil
	}
	return l.Scheme, strings.TrimSuffix(l.Bucket+"/"+l.Path, "/"), nil
}

const useFile = "use file:///absolute/path"

// ParseLocation takes file:///ABSOLUTE, file:ABSOLUTE and SCHEME://BUCKET[/PREFIX][?OPTION=VALUE&…] for every registered
// scheme apart. Its errors name the part that is wrong, what it holds and what to write instead.
func ParseLocation(raw string) (Location, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return Location{}, fmt.Errorf("store %q is not a URL: %s or SCHEME://BUCKET/PREFIX with one of the schemes %s", redact(raw), useFile, strings.Join(Schemes(), ", "))
	case u.Scheme == "":
		return Location{}, fmt.Errorf("store %q has no scheme: %s or SCHEME://BUCKET/PREFIX with one of the schemes %s", redact(raw), useFile, strings.Join(Schemes(), ", "))
	case u.User != nil && u.Scheme != "file":
		return Location{}, fmt.Errorf("store %q holds a user or password before the @: remove it; credentials come from the environment or the instance's role", u.Redacted())
	case u.Scheme == "file":
		return parseFile(raw, u)
	}
	registryMu.RLock()
	s, ok := registry[u.Scheme]
	registryMu.RUnlock()
	if !ok {
		return Location{}, unknownScheme(raw, u.Scheme)
	}
	return parseBucket(raw, u, s)
}

// redact cuts what could be a password out of a text that is no URL.
func redact(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		return "…" + raw[i:]
	}
	return raw
}

func unknownScheme(raw, name string) error {
	if pkg, ok := known[name]; ok {
		return fmt.Errorf("store scheme %q of %q is not built into this program, which has %s: import %s in its main package, or %s", name, raw, strings.Join(Schemes(), ", "), pkg, useFile)
	}
	return fmt.Errorf("store scheme %q of %q is not supported: use one of %s, as in file:///absolute/path", name, raw, strings.Join(Schemes(), ", "))
}

func parseFile(raw string, u *url.URL) (Location, error) {
	switch {
	case u.Host != "" || u.User != nil:
		return Location{}, fmt.Errorf("store %q names a host, %q: a file store is a path on this machine, file:///absolute/path", raw, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return Location{}, fmt.Errorf("store %q has a query or fragment: %s", raw, useFile)
	case u.Opaque != "" || !strings.HasPrefix(u.Path, "/"):
		return Location{}, fmt.Errorf("store %q is not absolute: %s", raw, useFile)
	case strings.ContainsRune(u.Path, 0):
		return Location{}, fmt.Errorf("store %q has a zero byte in its path: %s", raw, useFile)
	}
	return Location{Scheme: "file", Path: filepath.Clean(u.Path)}, nil
}

// isBucket tells whether any vendor could take a name as that of a bucket or container: 3 to 222 letters, digits and,
// between others, '-', '_' and '.'. A regular expression would be compiled at the start of every program.
func isBucket(name string) bool {
	if len(name) < 3 || len(name) > 222 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-_.", c) < 0, i == 0, i == len(name)-1:
			return false
		}
	}
	return true
}

func parseBucket(raw string, u *url.URL, s scheme) (Location, error) {
	want := u.Scheme + "://BUCKET/PREFIX"
	l := Location{Scheme: u.Scheme, Bucket: u.Host, Path: strings.Trim(u.Path, "/"), given: map[string]string{}, all: map[string]string{}}
	switch {
	case u.Opaque != "" || u.Host == "":
		return Location{}, fmt.Errorf("store %q names no bucket: use %s", raw, want)
	case u.Fragment != "" || strings.HasSuffix(raw, "#"):
		return Location{}, fmt.Errorf("store %q has a fragment, %q: use %s, and %%23 for a # in the prefix", raw, u.Fragment, want)
	case !isBucket(u.Host):
		return Location{}, fmt.Errorf("bucket %q of store %q is no bucket's name: use letters, digits, '-', '_' and '.', and option endpoint for a host or port", u.Host, raw)
	}
	if l.Path != "" {
		if err := checkPath(l.Path); err != nil {
			return Location{}, fmt.Errorf("prefix %q of store %q: %w: use %s", l.Path, raw, err, want)
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, fmt.Errorf("query %q of store %q: %w: use ?OPTION=VALUE&OPTION=VALUE with %%-escapes", u.RawQuery, raw, err)
	}
	var errs []error
	for _, o := range s.options {
		l.all[o.Name] = o.Default
		values, ok := query[o.Name]
		delete(query, o.Name)
		switch {
		case !ok:
			continue
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("option %s of store %q is given twice, as %q and %q: give it once", o.Name, raw, values[0], values[1]))
			continue
		case values[0] == "":
			errs = append(errs, fmt.Errorf("option %s of store %q is empty: give a value (%s) or leave it out", o.Name, raw, o.Type))
			continue
		}
		if o.Check != nil {
			if err := o.Check(values[0]); err != nil {
				errs = append(errs, fmt.Errorf("option %s of store %q is %q: %w", o.Name, raw, values[0], err))
				continue
			}
		}
		l.given[o.Name], l.all[o.Name] = values[0], values[0]
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		var names []string
		for _, o := range s.options {
			names = append(names, o.Name)
		}
		errs = append(errs, fmt.Errorf("option %q of store %q is unknown: %s takes %s", name, raw, u.Scheme, strings.Join(names, ", ")))
	}
	if len(errs) > 0 {
		return Location{}, errors.Join(errs...)
	}
	return l, nil
}

// Open returns the store at a URL. With create, a file store's directory is made if its parent exists; a bucket is never
// made. A store in a bucket is not asked anything yet: Probe does that.
func Open(raw string, create bool) (Store, error) {
	l, err := ParseLocation(raw)
	if err != nil {
		return nil, err
	}
	if l.Scheme == "file" {
		return OpenFile(l.Path, OS{}, create)
	}
	registryMu.RLock()
	s := registry[l.Scheme]
	registryMu.RUnlock()
	st, err := s.open(l)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", l, err)
	}
	return st, nil
}
