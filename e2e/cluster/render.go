package cluster

import (
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// templates are filled in here with [[ ]]; what stands in {{ }} is for the pool's local provider.
//
//go:embed templates
var templates embed.FS

// render fills in a template and writes it into the cluster's folder under its name and suffix.
func (c *Cluster) render(name, suffix string) (string, error) {
	if strings.HasSuffix(name, suffix) {
		suffix = ""
	}
	return c.renderTo(name, filepath.Join(c.Dir, name+suffix))
}

func (c *Cluster) renderTo(name, path string) (string, error) {
	t, err := template.New(name+".tmpl").Delims("[[", "]]").Option("missingkey=error").ParseFS(templates, "templates/"+name+".tmpl")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, c.values); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(b.String()), 0o600) // some hold tokens
}

// writeTrace writes an offering's trace in the format of spot-traces.
func writeTrace(path string, o Offering) error {
	b, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"gap_seconds": o.Tick.Seconds()},
		"data":     o.Trace,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
