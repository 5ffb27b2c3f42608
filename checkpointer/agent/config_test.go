package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
)

// loaded is what becomes of a configuration file; DIR in it is an existing directory, which is returned.
func loaded(t *testing.T, text string) (api.AgentConfig, string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.json")
	must.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600))
	c, err := agent.LoadConfig(file)
	return c, dir, err
}

// sound is a configuration without its closing brace.
const sound = `{"lineage": "l", "checkpoint_dir": "DIR", "state_dir": "DIR/state", "control_socket": "/c", "task_socket": "/t", "store": "file:///s"`

func TestLoadConfig_AllFaultsTogether(t *testing.T) {
	_, _, err := loaded(t, `{"lineag": "l", "lineage": "a//b", "checkpoint_dir": "DIR/none", "state_dir": "s", "control_socket": 5,
		"task_socket": "/t", "signal": "TERM", "interval": "soon", "fork": 1, "epoch": -1, "Uid": -1, "cheese": {}, "store": "ftp://x",
		"consul": {"host": "http://x", "service": ["s"], "token": 12345}}`)
	must.Error(t, err)
	told := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		"cheese, lineag: unknown: remove it or correct its name to one of cadence, checkpoint_dir, consul, control_socket, ",
		"consul.host: unknown: remove it or correct its name to one of address, datacenter, service, token",
		`consul.service: ["s"] is wrong: give a text in quotes`,
		"consul.token: the value is wrong: give a text in quotes",
		"control_socket: 5 is wrong: give a text in quotes",
		"epoch: -1 is wrong: give a whole number from 0",
		"fork: 1 is wrong: give true or false",
		`interval: "soon" is wrong: give a duration in quotes, such as "10m", or "auto"`,
		`signal: "TERM" is wrong: give a whole number`,
		`state_dir: "s" is not absolute: give a path that starts with /`,
		"lineage: ", "uid, gid: -1 and 0", `store: store scheme "ftp"`,
	} {
		must.SliceContainsFunc(t, told, want, func(line, want string) bool { return strings.Contains(line, want) }, must.Sprint(want))
	}
	must.StrNotContains(t, err.Error(), "control_socket: \"\"")
	must.StrNotContains(t, err.Error(), "12345")
}

func TestLoadConfig(t *testing.T) {
	for text, want := range map[string]string{
		sound + `}`:                                "",
		sound + `, "interval": "10m"}`:             "",
		sound + `, "consul": null}`:                "",
		sound + `, "durabilty": "local"}`:          "durabilty: unknown: ",
		sound + `, "consul": "http://x"}`:          `consul: "http://x" is wrong: give an object in braces`,
		sound + `, "checkpoint_dir": "/dev/null"}`: `checkpoint_dir: "/dev/null" is not a directory`,
		"[]":           "[] is not a JSON object: give one in braces",
		"":             "line 1 is not JSON: ",
		sound + "\n,}": "line 2 is not JSON: ",
	} {
		_, _, err := loaded(t, text)
		if want == "" {
			must.NoError(t, err)
			continue
		}
		must.ErrorContains(t, err, want)
		must.ErrorContains(t, err, "agent configuration /")
	}
}

// What the driver writes is read as it was, with every field set.
func TestLoadConfig_EveryField(t *testing.T) {
	var all map[string]any
	must.NoError(t, json.Unmarshal([]byte(`{"writer": "w", "rank": 1, "ranks": 2, "epoch": 3, "fork": true, "single_writer": true,
		"task_checkpoint_dir": "/t", "uid": 1, "gid": 2, "pattern": "*", "signal": 10, "interval": "auto", "max_cpus": 2,
		"cadence": {"mtbf": "5h0m0s", "hazard_shape": 0.5, "notice_success": 0.7, "max_interval": "1h0m0s", "launched_at": "2025-03-01T12:00:00Z",
			"spot_usd_per_hour": 0.9, "rework_usd_per_hour": 3, "storage_usd_per_gb": 0.01},
		"max_memory_bytes": 999999999, "effort": "fast", "links": 2, "precision": "compact", "durability": "replicated", "replicas": 1,
		"key_file": "/k", "log_level": "debug", "consul": {"address": "http://x", "token": "t", "datacenter": "d", "service": "s"},
		"lineage": "l", "checkpoint_dir": "/", "state_dir": "/none", "control_socket": "/c", "task_socket": "/u", "store": "file:///s"}`), &all))
	given, err := json.Marshal(all)
	must.NoError(t, err)
	c, _, err := loaded(t, string(given))
	must.NoError(t, err)
	written, err := json.Marshal(c)
	must.NoError(t, err)
	var again map[string]any
	must.NoError(t, json.Unmarshal(written, &again))
	must.Eq(t, all, again)
}

// An agent that is started again may find the task gone with all its directories: whoever starts it wants to know whether
// anything is left to save. A file in the place of the directory is a fault.
func TestLoadConfig_DirectoryGoneWithTheTask(t *testing.T) {
	dir := t.TempDir()
	text := strings.ReplaceAll(strings.Replace(sound, "DIR", dir+"/gone", 1), "DIR", dir) + "}"
	file := filepath.Join(dir, "agent.json")
	must.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := agent.LoadConfig(file)
	must.NoError(t, err)
	must.NoError(t, os.WriteFile(dir+"/gone", nil, 0o600))
	_, err = agent.LoadConfig(file)
	must.ErrorContains(t, err, "checkpoint_dir: ")
	must.ErrorContains(t, err, "is not a directory")
}
