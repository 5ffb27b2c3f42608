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

const somePack = "00000001-000000000100-0000-9f86d081884c7d659a2feaa0c55ad015"

func valid() *repository.Manifest {
	return &repository.Manifest{
		Format: 1, Lineage: "default/train", Authority: "repository:0123456789abcdef012345676ddad739", Epoch: 1, Step: 100, Name: "ckpt_100", Created: noon, RawBytes: 8, Files: 2,
		Packs:  []repository.PackRef{{Name: somePack, Bytes: 200, Index: 100}},
		Layout: []repository.Run{{0, 2, 1}}, Blocks: []repository.Run{{0, 0, 2}},
	}
}

// unchecked encodes a manifest without its checks, as an attacker would.
func unchecked(m *repository.Manifest) []byte {
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
	{"authority empty", func(m *repository.Manifest) { m.Authority = "" }, "authority"},
	{"authority too long", func(m *repository.Manifest) { m.Authority = strings.Repeat("a", 256) }, "authority"},
	{"forked from no snapshot", func(m *repository.Manifest) { m.Forked = &repository.Origin{Lineage: "l", Snapshot: "x"} }, "forked"},
	{"forked from no lineage", func(m *repository.Manifest) { m.Forked = &repository.Origin{Snapshot: m.ID()} }, "forked"},
	{"one rank", func(m *repository.Manifest) { m.Ranks = 1 }, "rank 0 of 1"},
	{"rank beyond", func(m *repository.Manifest) { m.Rank, m.Ranks = 2, 2 }, "rank 2 of 2"},
	{"rank without ranks", func(m *repository.Manifest) { m.Rank = 1 }, "rank 1 of 0"},
	{"too many ranks", func(m *repository.Manifest) { m.Ranks = 1<<16 + 1 }, "rank 0 of 65537"},
	{"lineage empty", func(m *repository.Manifest) { m.Lineage = "" }, "lineage"},
	{"lineage leads up", func(m *repository.Manifest) { m.Lineage = "a/../b" }, "lineage"},
	{"lineage is not text", func(m *repository.Manifest) { m.Lineage = "a\x00" }, "not UTF-8"},
	{"lineage too long", func(m *repository.Manifest) { m.Lineage = strings.Repeat("a", 256) }, "lineage"},
	{"name empty", func(m *repository.Manifest) { m.Name = "" }, "name"},
	{"name is a path", func(m *repository.Manifest) { m.Name = "a/b" }, "name"},
	{"name leads up", func(m *repository.Manifest) { m.Name = ".." }, "name"},
	{"name too long", func(m *repository.Manifest) { m.Name = strings.Repeat("n", 256) }, "name"},
	{"bytes below zero", func(m *repository.Manifest) { m.RawBytes = -1 }, "-1 bytes"},
	{"files below zero", func(m *repository.Manifest) { m.Files = -1 }, "-1 files"},
	{"files without end", func(m *repository.Manifest) { m.Files = math.MaxInt }, "files"},
	{"no layout", func(m *repository.Manifest) { m.Layout = nil }, "no layout"},
	{"pack twice", func(m *repository.Manifest) { m.Packs = append(m.Packs, m.Packs[0]) }, "occurs twice"},
	{"pack is a path", func(m *repository.Manifest) { m.Packs[0].Name = "../../../../etc/passwd" }, "no name of a pack"},
	{"pack without a sum", func(m *repository.Manifest) { m.Packs[0].Name = "00000001-000000000100-0000-" }, "no name of a pack"},
	{"pack of no snapshot", func(m *repository.Manifest) { m.Packs[0].Name = "1-1-0000-9f86d081884c7d659a2feaa0c55ad015" }, "no name of a pack"},
	{"pack in capitals", func(m *repository.Manifest) { m.Packs[0].Name = strings.ToUpper(somePack) }, "no name of a pack"},
	{"pack smaller than its index", func(m *repository.Manifest) { m.Packs[0].Bytes = 131 }, "its index 100"},
	{"index below zero", func(m *repository.Manifest) { m.Packs[0].Index = -1 }, "its index -1"},
	{"index without end", func(m *repository.Manifest) { m.Packs[0].Index, m.Packs[0].Bytes = 1<<40, 1<<41 }, "its index"},
	{"run of a pack that is not there", func(m *repository.Manifest) { m.Blocks[0][0] = 1 }, "of pack 1"},
	{"run below zero", func(m *repository.Manifest) { m.Layout[0][1] = -1 }, "from block -1"},
	{"empty run", func(m *repository.Manifest) { m.Blocks[0][2] = 0 }, "run of 0 blocks"},
	{"run without end", func(m *repository.Manifest) { m.Blocks[0][2] = math.MaxInt }, "run of"},
}

func TestManifest(t *testing.T) {
	b, err := valid().Encode()
	must.NoError(t, err)
	m, err := repository.ParseManifest(b)
	must.NoError(t, err)
	must.Eq(t, valid(), m)
	must.EqOp(t, "00000001-000000000100", m.ID())
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			m := valid()
			h.change(m)
			_, err := m.Encode()
			must.ErrorContains(t, err, h.err)
			_, err = repository.ParseManifest(unchecked(m))
			must.ErrorContains(t, err, h.err)
		})
	}
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
	f.Add(unchecked(valid()))
	for _, h := range hostile {
		m := valid()
		h.change(m)
		f.Add(unchecked(m))
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
