package cli

import (
	"os"
	"testing"

	"github.com/shoenig/test/must"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The page names every command and every flag.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../SPOTTER.md")
	must.NoError(t, err)
	page := string(data)
	var see func(c *cobra.Command)
	see = func(c *cobra.Command) {
		if c.HasParent() {
			must.StrContains(t, page, "`"+c.CommandPath(), must.Sprintf("command %s", c.CommandPath()))
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			must.StrContains(t, page, "`--"+f.Name, must.Sprintf("flag of %s", c.CommandPath()))
		})
		for _, sub := range c.Commands() {
			see(sub)
		}
	}
	root := &cobra.Command{Use: Name}
	for _, c := range commands {
		root.AddCommand(c())
	}
	see(root)
}
