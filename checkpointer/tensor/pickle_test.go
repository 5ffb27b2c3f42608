package tensor

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// paths are the names that a pickle gives to its storages, with their keys; ok is false for a pickle that is refused.
func paths(pickle []byte) (text string, ok bool) {
	o, ok := nameStorages(pickle)
	parts := []string{}
	for _, s := range o.storages {
		for key, other := range o.byKey {
			if s == other {
				parts = append(parts, s.name+"="+key)
			}
		}
	}
	return strings.Join(parts, " "), ok
}

// Opcodes that push a storage of float32: by a persistent id alone, and rebuilt as a tensor.
const (
	persistentOps = "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
	rebuildOps    = "ctorch._utils\n_rebuild_tensor_v2\n(" + persistentOps + "K\x00))\x89}tR"
)

func TestPickle(t *testing.T) {
	s := rebuildOps
	cases := []struct {
		name, ops, want string
		bad             bool
	}{
		{name: "storage alone", ops: persistentOps + ".", want: "=0"},
		{name: "tensor alone", ops: s + ".", want: "=0"},
		{name: "parameter", ops: "ctorch._utils\n_rebuild_parameter\n" + s + "\x88}\x87R.", want: "=0"},
		{
			name: "parameter with state",
			ops:  "}U\x01pctorch._utils\n_rebuild_parameter_with_state\n(" + s + "\x88}}tRs.", want: "p=0",
		},
		{name: "dict by SETITEM", ops: "}U\x01a" + s + "s.", want: "a=0"},
		{name: "dict by DICT", ops: "(U\x01a" + s + "d.", want: "a=0"},
		{name: "keys", ops: "}(K\x07}(\x88](" + s + "euu.", want: "7.true.0=0"},
		{name: "tuple as key", ops: "}(K\x01U\x01x\x86" + s + "u.", want: "(1,x)=0"},
		{name: "nested tuple as key", ops: "}(K\x01\x85U\x01x\x86" + s + "u.", want: "(?,x)=0"},
		{name: "float, None and class as keys", ops: "}G\x3f\xf8\x00\x00\x00\x00\x00\x00}N}cm\nC\n" + s + "sss.", want: "1.5.?.C=0"},
		{name: "list by LIST and APPEND", ops: "(K\x01N" + s + "l.", want: "2=0"},
		{name: "list by APPEND", ops: "]K\x05a" + s + "a.", want: "1=0"},
		{name: "tuples", ops: "K\x01" + s + "\x86\x85.", want: "0.1=0"},
		{name: "set", ops: "\x8f(K\x01" + s + "\x90.", want: "1=0"},
		{name: "frozenset", ops: "(K\x01" + s + "\x91.", want: "1=0"},
		{name: "ordered dictionary", ops: "ccollections\nOrderedDict\n)RU\x01a" + s + "s}U\x05_metaK\x01sb.", want: "a=0"},
		{name: "object by BUILD", ops: "cmine\nNet\n)\x81}U\x04_par}U\x01w" + s + "ssb.", want: "_par.w=0"},
		{name: "object by BUILD with slots", ops: "cmine\nNet\n)\x81N}U\x01w" + s + "s\x86b.", want: "1.w=0"},
		{name: "object by NEWOBJ_EX", ops: "cmine\nNet\n)}U\x01w" + s + "s\x92.", want: "w=0"},
		{name: "object by INST", ops: "(" + s + "imine\nNet\n.", want: "=0"},
		{name: "object by OBJ", ops: "(cmine\nNet\nK\x01" + s + "o.", want: "1=0"},
		{name: "unknown function", ops: "cos\nsystem\nU\x02rm" + s + "\x86R.", want: "1=0"},
		{
			name: "subclass", ops: "}U\x01sctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\ncmine\nT\n(" +
				persistentOps + "K\x00))\x89}tNtRs.", want: "s=0",
		},
		{
			name: "subclass with state", ops: "}U\x01sctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_wrapper\ncmine\nT\n(K\x01t" +
				"}U\x06_local" + s + "stRs.", want: "s._local=0",
		},
		{name: "protocol 4", ops: "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94\x8c\x05torch\x8c\x04none\x93\x940" + s + "s.", want: "a=0"},
		{name: "memo", ops: "}q\x00(U\x01ap1\n" + s + "r\x02\x00\x00\x00U\x01bh\x02U\x01cg2\nU\x01dj\x02\x00\x00\x00u.", want: "a=0"},
		{name: "memo out of order", ops: s + "q\x09\x940]h\x09a.", want: "0=0"},
		{name: "a cycle", ops: "]q\x00h\x00ah\x00a" + s + "a.", want: "2=0"},
		{name: "stack", ops: "](K\x010" + s + "2(K\x011K\x07(00e.", want: "0=0"},
		{name: "protocol 0", ops: "(I01\nI00\nI5\nL7L\nLx\nF1.5\nFx\nS'a'\nS\nVb\nPid\n" + s + "l.", want: "11=0"},
		{
			name: "numbers and bytes", ops: "(M\x01\x02J\xff\xff\xff\xff\x8a\x02\x00\x80\x8b\x01\x00\x00\x00\x05\x8a\x09123456789" +
				"C\x01xB\x01\x00\x00\x00x\x8e\x01\x00\x00\x00\x00\x00\x00\x00x\x96\x01\x00\x00\x00\x00\x00\x00\x00x" +
				"\x8d\x01\x00\x00\x00\x00\x00\x00\x00xT\x01\x00\x00\x00x\x97\x98\x82\x01\x83\x01\x02\x84\x01\x02\x03\x04" + s + "l.", want: "15=0",
		},
		{name: "persistent ids of others", ops: "]((U\x06moduletQ(tQNQ(U\x07storageNK\x07NNtQ" + s + "e.", want: "4=0"},

		{name: "empty", bad: true},
		{name: "no end", ops: "}", bad: true},
		{name: "nothing to return", ops: ".", bad: true},
		{name: "nothing above the mark", ops: "}(.", bad: true},
		{name: "no mark", ops: "]e.", bad: true},
		{name: "half an item", ops: "}(K\x01u.", bad: true},
		{name: "nothing to call", ops: "(o.", bad: true},
		{name: "nothing in the memo", ops: "h\x01.", bad: true},
		{name: "memo by a wrong number", ops: "gx\n.", bad: true},
		{name: "nothing to memoize", ops: "q\x00.", bad: true},
		{name: "an opcode that is none", ops: "\xff.", bad: true},
		{name: "text beyond the end", ops: "X\xff\xff\xff\xffabc.", bad: true},
		{name: "text far beyond the end", ops: "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", bad: true},
		{name: "a line without end", ops: "Iabc", bad: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := paths([]byte(c.ops))
			must.Eq(t, c.want, got)
			must.Eq(t, !c.bad, ok)
		})
	}
}

func TestLong(t *testing.T) {
	cases := map[string]int64{"": 0, "\x05": 5, "\xff": -1, "\x00\x80": -32768, "\x00\x00\x00\x00\x00\x00\x00\x80": -1 << 63, "\x80\x00": 128}
	for b, want := range cases {
		must.Eq(t, any(want), long([]byte(b)))
	}
	must.Eq(t, any(opaque{}), long(make([]byte, 9)))
}

func TestTypeByArgument(t *testing.T) {
	// Types without a class of storages are named when the tensor is rebuilt; the storage then counts bytes.
	ops := strings.Replace(persistentOps, "FloatStorage", "UntypedStorage", 1)
	o, ok := nameStorages([]byte("ctorch._utils\n_rebuild_tensor_v3\n(" + ops + "K\x00))\x89}ctorch\nfloat8_e4m3fn\ntR."))
	must.True(t, ok)
	must.Eq(t, F8, o.storages[0].dtype)
	must.Eq(t, 1, o.storages[0].bytes)
}

// Pickles that try to use up memory or time are refused, or cost no more than others of their length.
func TestPickleHostile(t *testing.T) {
	many := func(s string, n int) []byte { return bytes.Repeat([]byte(s), n) }
	const limit = 1000
	for name, c := range map[string]struct {
		first, then string
		most        int
	}{
		"lists":  {then: "]", most: limit},
		"tuples": {first: "N", then: "\x85", most: limit},
		"calls":  {first: "cm\nC\n", then: ")R", most: limit / 2},
		"stack":  {then: "N", most: limit},
		"marks":  {then: "(", most: limit},
		"memo":   {first: "N", then: "\x94", most: 2*limit + 1},
		"copies": {first: "]", then: "2", most: limit - 1},
	} {
		for n := c.most; n <= c.most+1; n++ {
			end := ""
			if name == "marks" {
				end = strings.Repeat("1", n) + "N"
			}
			m := machine{buf: append(append([]byte(c.first), many(c.then, n)...), end+"."...), limit: limit}
			_, ok := m.run()
			must.Eq(t, n == c.most, ok, must.Sprint(name, n))
		}
	}

	// Each list holds the one before it twice: 2⁶⁰ paths lead to the tensor.
	laughs := []byte(rebuildOps)
	for range 60 {
		laughs = append(laughs, "q\x00](h\x00h\x00e"...)
	}
	got, ok := paths(append(laughs, '.'))
	must.True(t, ok)
	must.Eq(t, strings.Repeat("0.", 59)+"0=0", got)

	// Deeply nested lists.
	const depth = 100_000
	deep := append(many("]", depth), rebuildOps...)
	got, ok = paths(append(append(deep, many("a", depth)...), '.'))
	must.True(t, ok)
	must.Eq(t, strings.Repeat("0.", maxPath/2-1)+"0=0", got)

	// A long key in the path of many storages.
	b := binary.LittleEndian.AppendUint32([]byte("}X"), 100_000)
	b = append(append(b, many("k", 100_000)...), "]("...)
	for i := range 1000 {
		b = appendValue(b, floats(strconv.Itoa(i), 1))
	}
	o, ok := nameStorages(append(b, "es."...))
	must.True(t, ok)
	for _, s := range o.storages {
		must.LessEq(t, maxPath, len(s.name))
	}

	// The same with a pickle that is small against the names it makes.
	b = append(binary.LittleEndian.AppendUint32([]byte("}X"), 900), many("k", 900)...)
	b = append(b, "]("...)
	b = append(b, "(X\x07\x00\x00\x00storageNq\x00U\x010NNt0"...)
	for i := range 1000 {
		b = append(b, "(U\x07storageNU\x03"...)
		b = append(b, strconv.Itoa(100 + i)[:3]...)
		b = append(b, "NNtQ"...)
	}
	_, ok = nameStorages(append(b, "es."...))
	must.False(t, ok)

	// A tuple of long texts that is a key again and again.
	b = append(binary.LittleEndian.AppendUint32([]byte("X"), 900), many("k", 900)...)
	b = append(append(b, "q\x00h\x00h\x00\x87q\x010}"...), many("h\x01]s", 100)...)
	_, ok = nameStorages(append(b, '.'))
	must.False(t, ok)
}

func FuzzPickle(f *testing.F) {
	for _, ops := range []string{
		rebuildOps + ".", "}(U\x01a" + rebuildOps + "u.", "ctorch._tensor\n_rebuild_from_type_v2\n(NN)NtR.",
		"\x80\x04}\x94\x8c\x01a" + persistentOps + "s.", "(cm\nC\n" + rebuildOps + "o.", "]q\x00h\x00a.",
	} {
		f.Add([]byte(ops))
	}
	f.Add(pickled([]pair{{"model", []pair{{"w", floats("0", 3)}}}, {"list", []any{floats("1", 2), 3, nil}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := nameStorages(b)
		if !ok {
			must.Nil(t, o.byKey)
			return
		}
		must.Eq(t, len(o.byKey), len(o.storages))
		total := 0
		for _, s := range o.storages {
			must.LessEq(t, maxPath, len(s.name))
			must.LessEq(t, 1<<62, s.bytes)
			total += len(s.name)
		}
		must.LessEq(t, textBudget(len(b)), total)
		again, _ := paths(b)
		first, _ := paths(b)
		must.Eq(t, again, first)
	})
}

func FuzzParse(f *testing.F) {
	f.Add(checkpoint("ckpt_1", true).bytes(), "x.pt")
	f.Add(torchFile("x", []pair{{"a", floats("0", 2)}}, map[string]int64{"0": 8, "7": 3}).bytes(), "pytorch_model.bin")
	f.Add(items().bytes(), "__0_0.distcp")
	f.Add(safetensorsFile(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), "model.safetensors")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		r := &bounded{t: t, b: b}
		got, err := Parse(r, int64(len(b)), name)
		must.NoError(t, err)
		checkLayout(t, got, int64(len(b)))
		if err := Complete(r, int64(len(b)), name); err != nil {
			must.ErrorIs(t, err, ErrIncomplete)
		}
	})
}

// bounded checks that all reads are within the file.
type bounded struct {
	t *testing.T
	b []byte
}

func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	must.Between(b.t, 0, off, int64(len(b.b)))
	must.LessEq(b.t, int64(len(b.b))-off, int64(len(p)))
	return bytes.NewReader(b.b).ReadAt(p, off)
}
