package config

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
)

// names returns the options of a schema; those of a block come after the block's name and a dot.
func names(spec *hclspec.Spec, prefix string) (out []string) {
	for name, s := range spec.GetObject().GetAttributes() {
		inner := s
		if d := s.GetDefault(); d != nil {
			inner = d.GetPrimary()
		}
		if b := inner.GetBlockValue(); b != nil && b.GetNested().GetObject() != nil {
			out = append(out, names(b.GetNested(), prefix+name+".")...)
			continue
		}
		out = append(out, prefix+name)
	}
	return out
}

// The pages name every option of both schemas.
func TestDocs_everyOption(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("../" + name)
		must.NoError(t, err)
		return string(b)
	}
	page, evacuation := read("README.md"), read("EVACUATION.md")
	for _, name := range names(PluginSchema(), "") {
		must.True(t, strings.Contains(page, "`"+name+"`") || strings.Contains(evacuation, "`"+name+"`"), must.Sprintf("plugin option %s", name))
	}
	for _, name := range names(TaskSchema(), "") {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "checkpoint."), "auth.")
		must.StrContains(t, page, "`"+short+"`", must.Sprintf("task option %s", name))
	}
}

// The page's examples are read without a fault: those of the plugin and those of a task's checkpoint block.
func TestDocs_examples(t *testing.T) {
	b, err := os.ReadFile("../README.md")
	must.NoError(t, err)
	plugins, tasks := 0, 0
	for i, part := range strings.Split(string(b), "```hcl\n") {
		text, _, _ := strings.Cut(part, "```")
		switch {
		case i == 0:
		case strings.HasPrefix(text, "plugin "):
			plugins++
			_, inner, _ := strings.Cut(text, "config {\n")
			inner = strings.TrimSuffix(strings.TrimSpace(inner), "}")
			inner = strings.TrimSuffix(strings.TrimSpace(inner), "}")
			_, err := DecodePlugin(decoder(t, PluginSchema(), native(t, inner)))
			must.NoError(t, err)
		default:
			tasks++
			_, err := DecodeTask(decoder(t, TaskSchema(), native(t, "image = \"x\"\n"+text)))
			must.NoError(t, err)
		}
	}
	must.EqOp(t, 1, plugins)
	must.Positive(t, tasks)
}
