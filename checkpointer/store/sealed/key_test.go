package sealed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/shoenig/test/must"
)

func TestParseKey(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	must.NoError(t, err)
	quantum, err := age.GenerateHybridIdentity()
	must.NoError(t, err)
	raw := append(random(31), '\n')
	for name, c := range map[string]struct {
		in     string
		secret string
		kind   Kind
		err    string
	}{
		"a passphrase":                   {"correct horse", "correct horse", Passphrase, ""},
		"a line's end":                   {"correct horse\r\n", "correct horse", Passphrase, ""},
		"other characters":               {"größer als 日本", "größer als 日本", Passphrase, ""},
		"32 bytes of text":               {strings.Repeat("x", 31) + "\n", strings.Repeat("x", 31), Passphrase, ""},
		"32 random bytes":                {string(raw), fmt.Sprintf("%x", raw), Random, ""},
		"an age identity":                {id.String(), id.String(), Random, ""},
		"what age-keygen prints":         {"# created: 2026\n# public key: " + id.Recipient().String() + "\n" + id.String() + "\n", id.String(), Random, ""},
		"a post-quantum age identity":    {quantum.String(), quantum.String(), Random, ""},
		"empty":                          {"", "", "", "empty"},
		"only a line's end":              {"\n", "", "", "empty"},
		"two lines":                      {"a\nb", "", "", "neither"},
		"31 bytes":                       {string(random(31)), "", "", "neither"},
		"33 bytes":                       {string(random(33)), "", "", "neither"},
		"two age identities":             {id.String() + "\n" + quantum.String(), "", "", "2 age identities"},
		"an age identity with a mistake": {id.String()[:50], "", "", "not a list of age identities"},
		"too long":                       {strings.Repeat("x", maxKeyFile+1), "", "", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := ParseKey([]byte(c.in))
			if c.err != "" {
				must.ErrorContains(t, err, c.err)
				must.StrNotContains(t, err.Error(), "AGE-SECRET-KEY")
				return
			}
			must.NoError(t, err)
			must.EqOp(t, c.secret, k.secret)
			must.EqOp(t, c.kind, k.kind)
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
				must.StrNotContains(t, fmt.Sprintf(verb, k), c.secret[:5])
				must.StrNotContains(t, fmt.Sprintf(verb, &k), c.secret[:5])
			}
		})
	}
}

func TestLoadKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	must.NoError(t, os.WriteFile(file, []byte("from the file\n"), 0o600))
	env := func(v string) func(string) string {
		return func(name string) string {
			must.EqOp(t, KeyVariable, name)
			return v
		}
	}
	k, err := LoadKey("", env(""))
	must.NoError(t, err)
	must.Nil(t, k)
	k, err = LoadKey("", env("from the environment"))
	must.NoError(t, err)
	must.EqOp(t, "from the environment", k.secret)
	k, err = LoadKey(file, env("from the environment"))
	must.NoError(t, err)
	must.EqOp(t, "from the file", k.secret)
	_, err = LoadKey(file+"-missing", env("from the environment"))
	must.ErrorIs(t, err, os.ErrNotExist)
	_, err = LoadKey("", env("a\nb"))
	must.ErrorContains(t, err, KeyVariable)
	must.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), maxKeyFile+1), 0o600))
	_, err = LoadKey(file, env(""))
	must.ErrorContains(t, err, "more than")
}

// A passphrase's slot is slow to try, as it was made to be.
func TestPassphraseWork(t *testing.T) {
	k, err := ParseKey([]byte("correct horse"))
	must.NoError(t, err)
	must.EqOp(t, 17, k.work)
	k.work = 4
	wrapped, err := k.wrap(make([]byte, repositoryKeySize))
	must.NoError(t, err)
	must.StrContains(t, string(wrapped), " 4\n")
	_, ok := k.unwrap(wrapped)
	must.True(t, ok)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok = k.unwrap(bytes.Replace(wrapped, []byte(" 4\n"), []byte(" 19\n"), 1)) // would take 512 MiB
	must.False(t, ok)
	runtime.ReadMemStats(&after)
	must.Less(t, 10<<20, after.TotalAlloc-before.TotalAlloc)
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("correct horse\n"))
	f.Add(random(32))
	f.Add([]byte("# x\nAGE-SECRET-KEY-1QQQ"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKey(b)
		if err != nil {
			return
		}
		must.NotEq(t, "", k.secret)
		if k.kind == Passphrase {
			again, err := ParseKey([]byte(k.secret + "\n"))
			must.NoError(t, err)
			must.EqOp(t, k, again)
		}
	})
}
