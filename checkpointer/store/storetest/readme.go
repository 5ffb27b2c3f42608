package storetest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
)

// Documented checks that the README, ../README.md from a vendor's package, has each option of a scheme in a table of the
// scheme's section, word for word.
func Documented(t *testing.T, scheme string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	must.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## `"+scheme+"://")
	must.True(t, ok, must.Sprintf("README.md has no section %s", scheme))
	section, _, _ = strings.Cut(section, "\n## ")
	must.Positive(t, len(store.Options(scheme)))
	for _, o := range store.Options(scheme) {
		value := o.Default
		if value == "" {
			value = "none"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", o.Name, o.Type, value, o.Meaning)
		must.StrContains(t, section, row)
	}
}
