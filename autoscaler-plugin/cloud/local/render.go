package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	texttemplate "text/template"

	"nomad-spotter/autoscaler-plugin/atomicfile"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// Fields are what templates, arguments and environment values of a pool file may name, as in {{.Dir}}.
type Fields struct {
	ID             string // the instance's ID; use it as the name of the Nomad node
	Dir            string // the instance's directory
	Pool           string
	Offering       string
	Region         string // use it as the Nomad datacenter
	Zone           string
	Type           string
	Kind           cloud.Kind
	MetadataURL    string // base URL of the instance's own metadata endpoint
	HTTPPort       int    // Nomad's ports.http
	RPCPort        int    // Nomad's ports.rpc
	SerfPort       int    // Nomad's ports.serf
	MinDynamicPort int    // Nomad's client.min_dynamic_port
	MaxDynamicPort int    // Nomad's client.max_dynamic_port
}

// renderText executes one template; an unknown field is an error that names it.
func renderText(name, text string, fields Fields) (string, error) {
	t, err := texttemplate.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse template: %w", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, fields); err != nil {
		return "", fmt.Errorf("execute template: %w", err)
	}
	return out.String(), nil
}

// checkTemplate renders a template file without values, to find its faults before anything is launched.
func checkTemplate(t template) error {
	data, err := os.ReadFile(t.Source)
	if err != nil {
		return err
	}
	_, err = renderText(t.Name, string(data), Fields{})
	return err
}

// render writes the rendered templates into the instance's directory and returns the processes with every argument
// rendered.
func render(c config, fields Fields) ([]process, error) {
	for _, t := range c.templates {
		data, err := os.ReadFile(t.Source)
		if err != nil {
			return nil, fmt.Errorf("read template %q: %w", t.Name, err)
		}
		text, err := renderText(t.Name, string(data), fields)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", t.Name, err)
		}
		if err := atomicfile.WriteFile(filepath.Join(fields.Dir, t.Name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	processes := make([]process, 0, len(c.processes))
	for _, p := range c.processes {
		out := process{Name: p.Name, Env: map[string]string{}}
		for i, arg := range p.Argv {
			text, err := renderText("argv", arg, fields)
			if err != nil {
				return nil, fmt.Errorf("process %q argv[%d]: %w", p.Name, i, err)
			}
			out.Argv = append(out.Argv, text)
		}
		for key, value := range p.Env {
			text, err := renderText("env", value, fields)
			if err != nil {
				return nil, fmt.Errorf("process %q env %s: %w", p.Name, key, err)
			}
			out.Env[key] = text
		}
		var err error
		if out.WaitFor, err = renderText("wait_for", p.WaitFor, fields); err != nil {
			return nil, fmt.Errorf("process %q wait_for: %w", p.Name, err)
		}
		processes = append(processes, out)
	}
	return processes, nil
}
