package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// sample is a run in which nothing was lost.
func sample() result {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return result{
		notice: t0, noticeSeen: t0.Add(800 * time.Millisecond), durable: t0.Add(1500 * time.Millisecond), running: t0.Add(4 * time.Second),
		sum: "abc", reference: "abc", checkpoints: 7, rawBytes: 700, storedBytes: 650,
		pool: &cluster.PoolStatus{CostUSD: 0.5, OnDemandCostUSD: 1.5},
	}
}

// The summary's keys are a promise of the README.
func TestResult_write(t *testing.T) {
	r := sample()
	file := filepath.Join(t.TempDir(), "summary.json")
	must.NoError(t, r.write(file))
	b, err := os.ReadFile(file)
	must.NoError(t, err)
	var got map[string]any
	must.NoError(t, json.Unmarshal(b, &got))
	must.Eq(t, map[string]any{
		"identical": true, "steps_lost": 0.0, "notice_seen_s": 0.8, "notice_to_durable_s": 1.5, "notice_to_running_s": 4.0,
		"checkpoints": 7.0, "raw_bytes": 700.0, "stored_bytes": 650.0, "cost_usd": 0.5, "ondemand_cost_usd": 1.5,
	}, got)
	must.NoError(t, r.write(""))
}

// A model that differs and steps that are lost make the demo fail, and are said.
func TestResult_verdict(t *testing.T) {
	good := sample()
	must.NoError(t, good.verdict())
	for text, spoil := range map[string]func(*result){
		"the model differs": func(r *result) { r.sum = "abd" },
		"2 steps were lost": func(r *result) { r.stepsLost = 2 },
	} {
		bad := sample()
		spoil(&bad)
		must.ErrorContains(t, bad.verdict(), text)
		file := filepath.Join(t.TempDir(), "summary.json")
		must.NoError(t, bad.write(file))
		b, err := os.ReadFile(file)
		must.NoError(t, err)
		must.Eq(t, fmt.Sprint(bad.sum == bad.reference), field(t, b, "identical"))
	}
}

func field(t *testing.T, b []byte, name string) string {
	t.Helper()
	var got map[string]json.RawMessage
	must.NoError(t, json.Unmarshal(b, &got))
	return string(got[name])
}
