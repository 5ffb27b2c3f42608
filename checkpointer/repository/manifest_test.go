package repository_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
)

const someHash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func valid() *repository.Manifest {
	return &repository.Manifest{
		Format: 1, Lineage: "default/train", Epoch: 1, Step: 100, Name: "ckpt_100", Created: noon,
		Entries: []repository.Entry{
			{Dir: true, Mode: 0o755},
			{Path: "a", Mode: 0o644, Size: 4, SHA256: someHash},
			{Path: "d", Dir: true, Mode: 0o700},
			{Path: "d/b", Mode: 0o600, Size: 4, SHA256: someHash},
		},
	}
}

// sealed encodes a manifest without its checks, as an attacker would.
func sealed(m *repository.Manifest) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return sealedLine(string(b))
}

func sealedLine(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return []byte(body + "\nsha256:" + hex.EncodeToString(sum[:]) + "\n")
}

// hostile are manifests with a good checksum that must be refused, with what the error says.
var hostile = []struct {
	name   string
	change func(m *repository.Manifest)
	err    string
}{
	{"format", func(m *repository.Manifest) { m.Format = 2 }, "format 2 is not 1"},
	{"epoch", func(m *repository.Manifest) { m.Epoch = 0 }, "epoch is 0"},
	{"step", func(m *repository.Manifest) { m.Step = -1 }, "step -1 is negative"},
	{"lineage empty", func(m *repository.Manifest) { m.Lineage = "" }, "lineage"},
	{"lineage leads up", func(m *repository.Manifest) { m.Lineage = "a/../b" }, "lineage"},
	{"lineage is not text", func(m *repository.Manifest) { m.Lineage = "a\x00" }, "not UTF-8"},
	{"lineage too long", func(m *repository.Manifest) { m.Lineage = strings.Repeat("a", 256) }, "lineage"},
	{"name empty", func(m *repository.Manifest) { m.Name = "" }, "name"},
	{"name is a path", func(m *repository.Manifest) { m.Name = "a/b" }, "name"},
	{"name leads up", func(m *repository.Manifest) { m.Name = ".." }, "name"},
	{"name too long", func(m *repository.Manifest) { m.Name = strings.Repeat("n", 256) }, "name"},
	{"no entry", func(m *repository.Manifest) { m.Entries = nil }, "first entry"},
	{"no root", func(m *repository.Manifest) { m.Entries = m.Entries[1:] }, "first entry"},
	{"path leads up", func(m *repository.Manifest) { m.Entries[1].Path = "../a" }, "not within"},
	{"path leads up later", func(m *repository.Manifest) { m.Entries[1].Path = "d/../../a" }, "not within"},
	{"path absolute", func(m *repository.Manifest) { m.Entries[1].Path = "/etc/passwd" }, "not within"},
	{"path of the root", func(m *repository.Manifest) { m.Entries[1].Path = "." }, "not within"},
	{"path twice", func(m *repository.Manifest) { m.Entries[2].Path = "a" }, "occurs twice"},
	{"path below a file", func(m *repository.Manifest) { m.Entries[3].Path = "a/b" }, "before its directory"},
	{"path before its directory", func(m *repository.Manifest) { m.Entries[2], m.Entries[3] = m.Entries[3], m.Entries[2] }, "before its directory"},
	{"setuid", func(m *repository.Manifest) { m.Entries[1].Mode = 0o4755 }, "only permission bits"},
	{"device", func(m *repository.Manifest) { m.Entries[1].Mode = 1 << 26 }, "only permission bits"},
	{"size below zero", func(m *repository.Manifest) { m.Entries[1].Size = -1 }, "has size -1"},
	{"sizes overflow", func(m *repository.Manifest) { m.Entries[1].Size = math.MaxInt64 }, "larger than"},
	{"directory with content", func(m *repository.Manifest) { m.Entries[2].Size = 1 }, "has content"},
	{"no hash", func(m *repository.Manifest) { m.Entries[1].SHA256 = "" }, "no SHA-256"},
	{"short hash", func(m *repository.Manifest) { m.Entries[1].SHA256 = someHash[:62] }, "no SHA-256"},
	{"hash in capitals", func(m *repository.Manifest) { m.Entries[1].SHA256 = strings.ToUpper(someHash) }, "no SHA-256"},
	{"hash is a path", func(m *repository.Manifest) { m.Entries[1].SHA256 = "../../../../etc/passwd" }, "no SHA-256"},
}

func TestManifest(t *testing.T) {
	b, err := valid().Encode()
	must.NoError(t, err)
	m, err := repository.ParseManifest(b)
	must.NoError(t, err)
	must.Eq(t, valid(), m)
	must.EqOp(t, "00000001-000000000100", m.ID())
	must.EqOp(t, 8, m.RawBytes())
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			m := valid()
			h.change(m)
			_, err := m.Encode()
			must.ErrorContains(t, err, h.err)
			_, err = repository.ParseManifest(sealed(m))
			must.ErrorContains(t, err, h.err)
		})
	}
	m = valid()
	m.Entries[1].Size = math.MaxInt64 - 4 // with the other four bytes just possible
	_, err = m.Encode()
	must.NoError(t, err)
}

// Every single changed byte of a manifest is noticed, and so is every truncation.
func TestManifestDamage(t *testing.T) {
	b, err := valid().Encode()
	must.NoError(t, err)
	for i := range b {
		_, err := repository.ParseManifest(b[:i])
		must.Error(t, err, must.Sprintf("cut at %d", i))
		for _, bit := range []byte{1, 0x20, 0x80} {
			c := append([]byte(nil), b...)
			c[i] ^= bit
			_, err := repository.ParseManifest(c)
			must.Error(t, err, must.Sprintf("bit %x of byte %d", bit, i))
		}
	}
	_, err = repository.ParseManifest(append(b, '\n'))
	must.Error(t, err)
}

// One manifest has one form: what JSON tolerates beside it is refused even with a good checksum.
func TestManifestForm(t *testing.T) {
	b, err := json.Marshal(valid())
	must.NoError(t, err)
	body := string(b)
	for _, c := range []string{
		" " + body, body + " ", body + " {}", strings.Replace(body, `"step":`, `"Step":`, 1),
		strings.Replace(body, `"step":100`, `"step":1e2`, 1), strings.Replace(body, `"step":100`, `"step":5,"step":100`, 1),
		strings.Replace(body, "Z", "+00:00", 1), strings.Replace(body, `"epoch"`, `"more":1,"epoch"`, 1),
		strings.Replace(body, "ckpt_100", "ckpt_\xff", 1), strings.Replace(body, "ckpt_100", `ckpt_\u0031`, 1),
		"null", "{}", "[]", "",
	} {
		_, err := repository.ParseManifest(sealedLine(c))
		must.Error(t, err, must.Sprint(c))
	}
	_, err = repository.ParseManifest(sealedLine(body))
	must.NoError(t, err)
}

func TestCheckLineage(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, ok := range []string{"a", "default/train/trainer/main/0", "ü", "a@b", "@seen", "a b", long, long + "/" + long + "/" + long + "/" + long} {
		must.NoError(t, repository.CheckLineage(ok), must.Sprint(ok))
	}
	for _, bad := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "\xff", "a\x00", long + "a", strings.Repeat("é", 43), strings.Repeat("a/", 512) + "a"} {
		must.Error(t, repository.CheckLineage(bad), must.Sprint(bad))
	}
}

// What parses encodes to the same bytes again.
func FuzzParseManifest(f *testing.F) {
	f.Add(sealed(valid()))
	for _, h := range hostile {
		m := valid()
		h.change(m)
		f.Add(sealed(m))
	}
	f.Add([]byte(""))
	f.Add([]byte("{}\nsha256:" + someHash + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The fuzzer cannot guess a checksum, so the line is tried with a good one too.
		line, _, _ := strings.Cut(string(b), "\n")
		for _, b := range [][]byte{b, sealedLine(line)} {
			m, err := repository.ParseManifest(b)
			if err != nil {
				continue
			}
			again, err := m.Encode()
			must.NoError(t, err)
			must.EqOp(t, string(b), string(again))
		}
	})
}
