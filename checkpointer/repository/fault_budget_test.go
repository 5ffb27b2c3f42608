package repository_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/shoenig/test/must"
)

// budget is how many random cases a test tries: n, and with SPOTTER_SOAK=FACTOR in the environment so many times as many.
func budget(t *testing.T, n int) int {
	t.Helper()
	v := os.Getenv("SPOTTER_SOAK")
	if v == "" {
		return n
	}
	factor, err := strconv.Atoi(v)
	must.NoError(t, err)
	must.Positive(t, factor)
	return n * factor
}
