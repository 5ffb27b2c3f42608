// Package config holds what operators and job authors may write: the plugin block of the Nomad agent and the config
// block of a task. Each has its schema, its struct, its defaults and its checks in one file. It never touches anything
// outside the values it is given.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// faults collects everything that is wrong with a configuration, so that it is reported in one go.
type faults struct {
	root string // path that every field starts with
	errs []error
}

// add notes a fault of a field; format holds the value and the next step.
func (f *faults) add(field, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s.%s: "+format, append([]any{f.root, field}, args...)...))
}

func (f *faults) err() error { return errors.Join(f.errs...) }

// duration parses a duration that may be zero or more; empty means fallback.
func (f *faults) duration(field, text string, fallback time.Duration) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		f.add(field, `%q is no duration; write a number with a unit, such as "30s" or "5m"`, text)
	case d < 0:
		f.add(field, `%q is negative; use "0s" or more`, text)
	default:
		return d
	}
	return fallback
}

// interval is duration where "auto" would do as well.
func (f *faults) interval(field, text string) time.Duration {
	if _, err := time.ParseDuration(text); text != "" && err != nil {
		f.add(field, `%q is no duration; write a number with a unit, such as "30s" or "5m", or "auto"`, text)
		return 0
	}
	return f.duration(field, text, 0)
}

// number parses a number; empty means 0.
func (f *faults) number(field, text string) float64 {
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f.add(field, `%q is no number; write one such as 0.7`, text)
		return 0
	}
	return v
}

// positive is duration for values that must not be zero.
func (f *faults) positive(field, text string, fallback time.Duration) time.Duration {
	d := f.duration(field, text, fallback)
	if d == 0 {
		f.add(field, `%q would leave no time at all; use a duration above zero, such as %q`, text, fallback)
	}
	return d
}

// absolute checks a path inside the container or on the host; example is a good one.
func (f *faults) absolute(field, p, where, example string) {
	switch {
	case p == "":
		f.add(field, `is empty; give an absolute path %s, such as %q`, where, example)
	case !path.IsAbs(p):
		f.add(field, `%q is relative; give an absolute path %s, such as %q`, p, where, example)
	case strings.ContainsRune(p, 0):
		f.add(field, `%q holds a NUL byte; remove it`, p)
	}
}

// StoreSchemes are the kinds of stores that a checkpoint agent of this program can write to, sorted.
var StoreSchemes = []string{"azblob", "cos", "file", "gs", "oss", "s3"}

// store checks the URL of a checkpoint store; empty means that none is named.
func (f *faults) store(field, text string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		f.add(field, `%q is no URL; write one such as "file:///srv/checkpoints"`, text)
	case !slices.Contains(StoreSchemes, u.Scheme):
		f.add(field, `%q has the scheme %q; known: %s. Write for example "file:///srv/checkpoints"`,
			text, u.Scheme, strings.Join(StoreSchemes, ", "))
	case u.Scheme != "file" && u.User != nil:
		f.add(field, `%q holds a user or password; remove it, credentials come from the environment or the instance's role`, u.Redacted())
	case u.Scheme != "file" && u.Host == "":
		f.add(field, `%q names no bucket; write for example "%s://bucket/prefix"`, text, u.Scheme)
	case u.Scheme == "file" && (u.Host != "" || !path.IsAbs(u.Path) || u.Path == "/"):
		f.add(field, `%q names no directory of this machine; write three slashes and an absolute path, such as "file:///srv/checkpoints"`, text)
	}
}

// httpURL checks the address of an HTTP service; empty means that it is off.
func (f *faults) httpURL(field, text, example string, schemes ...string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err == nil {
		for _, s := range schemes {
			if u.Scheme == s && (u.Host != "" || s == "unix") {
				return
			}
		}
	}
	f.add(field, `%q is no address of the form %s; write for example %q`, text, strings.Join(schemes, "://… or ")+"://…", example)
}
