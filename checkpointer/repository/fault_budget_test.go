package repository_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/shoenig/test/must"
)

// budget is how many random cases a test tries: n, and with SPOTTER_SOAK=N in the environment N.
func budget(t *testing.T, n int) int {
	t.Helper()
	if v := os.Getenv("SPOTTER_SOAK"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		must.NoError(t, err)
	}
	return n
}
