package tensor

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

func TestNames(t *testing.T) {
	for k := Other; k <= Variance; k++ {
		got, ok := ParseKind(k.String())
		must.True(t, ok)
		must.Eq(t, k, got)
	}
	for d := Bytes; d <= F8; d++ {
		got, ok := ParseDType(d.String())
		must.True(t, ok)
		must.Eq(t, d, got)
	}
	_, ok := ParseKind("x")
	must.False(t, ok)
	_, ok = ParseDType("f128")
	must.False(t, ok)
	widths := []int{}
	text := []string{}
	for d := Bytes; d <= F8+1; d++ {
		widths = append(widths, d.Width())
		text = append(text, d.String())
	}
	must.Eq(t, []int{1, 4, 2, 2, 8, 8, 4, 2, 1, 1, 1, 1, 1}, widths)
	must.Eq(t, "|f32|f16|bf16|f64|i64|i32|i16|i8|u8|bool|f8|dtype(12)", strings.Join(text, "|"))
	must.Eq(t, "|w|m|v|kind(4)", strings.Join([]string{
		Other.String(), Weight.String(), Momentum.String(), Variance.String(), Kind(4).String(),
	}, "|"))
}

func TestKindOf(t *testing.T) {
	cases := []struct {
		path string
		want Kind
	}{
		{"model.blocks.0.qkv.weight", Weight},
		{"state_dict.bn.running_var", Weight},
		{"optim.state.3.exp_avg", Momentum},
		{"optim.state.3.exp_avg_sq", Variance},
		{"optim.state.3.max_exp_avg_sq", Variance},
		{"optim.state.3.unknown", Other},
		{"optimizer_states.0.state.0.momentum_buffer", Momentum},
		{"optimizer.state.exp_avg.decoder.layers.0.weight", Momentum},
		{"optimizer.fp32_from_fp16_params.0.1", Weight},
		{"optimizer_state_dict.single_partition_of_fp32_groups.0", Weight},
		{"optimizer_state_dict.base_optimizer_state.0.exp_avg_sq", Variance},
		{"opt_state.0.mu.params.dense.kernel", Momentum},
		{"opt_state.0.nu.dense.kernel", Variance},
		{"optimizer.state.w.v", Variance},
		{"optimizer.state.5.state1", Momentum},
		{"attention.v.weight", Weight},
		{"attention.sum", Weight},
		{"optim.state.3.exp_avg._local_tensor", Momentum},
	}
	for _, c := range cases {
		must.Eq(t, c.want, kindOf(c.path, F32, 100), must.Sprint(c.path))
	}
	must.Eq(t, Other, kindOf("optim.state.3.step", F32, 1))
	must.Eq(t, Other, kindOf("model.ids", I64, 100))
	must.Eq(t, Momentum, kindOf("optim.state.3.exp_avg", U8, 100))
}

// checkpoint is a small training state; optimizer says whether it has taken a step.
func checkpoint(folder string, optimizer bool) *image {
	object := []pair{
		{"model", []pair{{"a.weight", floats("0", 6)}, {"b.weight", stored{"1", "BFloat16Storage", 4}}}},
		{"optim", []pair{{"state", []pair{}}, {"param_groups", []any{[]pair{{"lr", 1}, {"params", []any{0, 1}}}}}}},
	}
	data := map[string]int64{"0": 24, "1": 8}
	rng := "2"
	if optimizer {
		state := []pair{
			{0, []pair{{"step", floats("2", 1)}, {"exp_avg", floats("3", 6)}, {"exp_avg_sq", floats("4", 6)}}},
		}
		object[1].value = []pair{{"state", state}}
		data["2"], data["3"], data["4"] = 4, 24, 24
		rng = "10"
	}
	object = append(object, pair{"rng", stored{rng, "ByteStorage", 100}})
	data[rng] = 100
	return torchFile(folder, object, data)
}

func TestParseTorch(t *testing.T) {
	const model = " model.a.weight:w:f32:24 model.b.weight:w:bf16:8"
	cases := []struct {
		name string
		file *image
		want string
	}{
		{"before the first step", checkpoint("ckpt_1", false), "torch" + model + " rng::u8:100"},
		{
			"after it, keys and places have changed", checkpoint("ckpt_10000", true),
			"torch model.a.weight:w:f32:24 model.b.weight:w:bf16:8 rng::u8:100" +
				" optim.state.0.step::f32:4 optim.state.0.exp_avg:m:f32:24 optim.state.0.exp_avg_sq:v:f32:24",
		},
		{
			"tied, the first path counts",
			torchFile("x", []pair{{"tok", floats("0", 2)}, {"head", floats("0", 2)}}, map[string]int64{"0": 8}),
			"torch tok:w:f32:8",
		},
		{
			"the same path twice",
			torchFile("x", []pair{{"a.b", floats("1", 2)}, {"a", []pair{{"b", floats("0", 2)}}}}, map[string]int64{"0": 8, "1": 8}),
			"torch a.b#1:w:f32:8 a.b:w:f32:8",
		},
		{"alone", torchFile("archive", floats("0", 2), map[string]int64{"0": 8}), "torch tensor:w:f32:8"},
		{
			"not in the pickle",
			torchFile("x", []pair{{"a", floats("0", 2)}}, map[string]int64{"0": 8, "7": 3}), "torch a:w:f32:8 data/7:::3",
		},
		{
			"of another length than the pickle says",
			torchFile("x", []pair{{"a", floats("0", 2)}}, map[string]int64{"0": 12}), "torch a:::12",
		},
		{
			"empty", torchFile("x", []pair{{"a", floats("0", 0)}, {"b", floats("1", 2)}}, map[string]int64{"0": 0, "1": 8}),
			"torch b:w:f32:8",
		},
		{
			"complex", torchFile("x", []any{stored{"0", "ComplexFloatStorage", 2}}, map[string]int64{"0": 16}),
			"torch 0:w:f32:16",
		},
		{"a damaged pickle", torchFile("x", []byte("}h\x07"), map[string]int64{"0": 8}), "torch data/0:::8"},
		{"no data", torchFile("x", []pair{}, nil), "torch"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(c.file, c.file.size, "x.pt")
			must.NoError(t, err)
			must.Eq(t, c.want, describe(got))
			checkLayout(t, got, c.file.size)
			must.NoError(t, Complete(c.file, c.file.size, "x.pt"))
			matchZip(t, c.file, got)
		})
	}
}

// matchZip compares the places of the data entries with those that the standard library finds.
func matchZip(t *testing.T, file *image, l Layout) {
	t.Helper()
	z, err := zip.NewReader(file, file.size)
	must.NoError(t, err)
	want := map[int64]int64{}
	for _, f := range z.File {
		if _, data, _ := strings.Cut(f.Name, "/"); strings.HasPrefix(data, "data/") && f.UncompressedSize64 > 0 {
			off, err := f.DataOffset()
			must.NoError(t, err)
			want[off] = int64(f.UncompressedSize64)
		}
	}
	got := map[int64]int64{}
	off := int64(0)
	for _, s := range l.Sections {
		if s.Name != "" {
			got[off] = s.Len
		}
		off += s.Len
	}
	must.Eq(t, want, got)
}

// checkLayout checks what holds for every layout.
func checkLayout(t *testing.T, l Layout, size int64) {
	t.Helper()
	sum := int64(0)
	taken := map[string]bool{}
	for i, s := range l.Sections {
		must.Positive(t, s.Len)
		must.Zero(t, s.Len%int64(s.DType.Width()))
		sum += s.Len
		if s.Name == "" {
			must.Eq(t, Section{Len: s.Len}, s)
			must.True(t, i == 0 || l.Sections[i-1].Name != "", must.Sprint("two sections without a name follow each other"))
			continue
		}
		must.False(t, taken[s.Name], must.Sprint(s.Name))
		taken[s.Name] = true
	}
	must.Eq(t, size, sum)
	must.SliceContains(t, []string{FormatRaw, FormatTorch, FormatSafetensors}, l.Format)
}

func TestTorchVariants(t *testing.T) {
	object := pickled([]pair{{"a", floats("0", 2)}})
	data := []byte("abcdefgh")
	cases := []struct {
		name    string
		records []record
		want    string
	}{
		{"lengths before the data", []record{
			{name: "x/data.pkl", data: object, known: true},
			{name: "x/data/0", data: data, known: true},
		}, "torch a:w:f32:8"},
		{"compressed", []record{{name: "x/data.pkl", data: object}, {name: "x/data/0", data: data, method: 8}}, "torch"},
		{"compressed pickle", []record{
			{name: "x/data.pkl", data: object, method: 8},
			{name: "x/data/0", data: data},
		}, "torch data/0:::8"},
		{"big-endian", []record{
			{name: "x/data.pkl", data: object},
			{name: "x/byteorder", data: []byte("big")},
			{name: "x/data/0", data: data},
		}, "torch a:::8"},
		{"little-endian", []record{
			{name: "x/data.pkl", data: object},
			{name: "x/byteorder", data: []byte("little")},
			{name: "x/data/0", data: data},
		}, "torch a:w:f32:8"},
		{"the same entry twice", []record{
			{name: "x/data.pkl", data: object},
			{name: "x/data/0", data: data},
			{name: "x/data/0", data: data},
		}, "torch a:w:f32:8 data/0:::8"},
		{"no pickle", []record{{name: "x/data/0", data: data}}, "raw"},
		{"another folder", []record{{name: "x/data.pkl", data: object}, {name: "y/data/0", data: data}}, "torch"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := &image{}
			m.zip(c.records...)
			got, err := Parse(m, m.size, "x.pt")
			must.NoError(t, err)
			must.Eq(t, c.want, describe(got))
			checkLayout(t, got, m.size)
		})
	}
}

func TestLargeZip(t *testing.T) {
	const large = 5 << 30
	object := []pair{{"a", floats("0", large/4)}, {"b", floats("1", large/4)}, {"c", floats("2", 2)}}
	m := torchFile("x", object, map[string]int64{"0": large, "1": large, "2": 8})
	must.Greater(t, 2*large, m.size)
	got, err := Parse(m, m.size, "x.pt")
	must.NoError(t, err)
	must.Eq(t, "torch a:w:f32:5368709120 b:w:f32:5368709120 c:w:f32:8", describe(got))
	checkLayout(t, got, m.size)
	matchZip(t, m, got)
	must.NoError(t, Complete(m, m.size, "x.pt"))
	must.ErrorIs(t, Complete(m, m.size-1, "x.pt"), ErrIncomplete)
}

func TestParseSafetensors(t *testing.T) {
	two := `{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},` +
		`"opt.exp_avg":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}}`
	cases := []struct {
		name, header string
		data         int
		want         string
	}{
		{"two", two, 14, "safetensors w:w:f32:8 opt.exp_avg:m:bf16:6"},
		{"more data than tensors", two, 20, "safetensors w:w:f32:8 opt.exp_avg:m:bf16:6"},
		{"none", `{}`, 0, "safetensors"},
		{
			"not in the order of the file", `{"b":{"dtype":"I64","shape":[2],"data_offsets":[2,18]},` +
				`"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}`, 18, "safetensors a::bool:2 b::i64:16",
		},
		{"a gap", `{"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 6, "safetensors b::u8:2"},
		{"a new type", `{"b":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2, "safetensors b:::2"},
		{"no elements", `{"b":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}}`, 2, "safetensors"},
		{"a scalar", `{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4, "safetensors b::f32:4"},
		{"cut short", two, 13, "raw"},
		{"overlap", strings.Replace(two, "8,14", "7,13", 1), 14, "raw"},
		{"backwards", strings.Replace(two, "8,14", "14,8", 1), 14, "raw"},
		{"one offset", strings.Replace(two, "8,14", "8", 1), 14, "raw"},
		{"negative", strings.Replace(two, "0,8", "-8,8", 1), 14, "raw"},
		{"wrong shape", strings.Replace(two, "[3]", "[4]", 1), 14, "raw"},
		{"a shape beyond 2⁶⁴", strings.Replace(two, "[3]", "[4294967296,4294967296]", 1), 14, "raw"},
		{"the same name", strings.Replace(two, "opt.exp_avg", "w", 1), 14, "raw"},
		{"no JSON", strings.Replace(two, ":", ";", 1), 14, "raw"},
		{"JSON and more", two + "x", 14, "raw"},
		{"null behind it", two + "null", 14, "raw"},
		{"no object", `{"w":3}`, 14, "raw"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := safetensorsFile(c.header, c.data)
			got, err := Parse(bytes.NewReader(b), int64(len(b)), "model.safetensors")
			must.NoError(t, err)
			must.Eq(t, c.want, describe(got))
			checkLayout(t, got, int64(len(b)))
		})
	}
}

func TestParseRaw(t *testing.T) {
	for _, text := range []string{"", "x", "PK", "PK\x03\x04", "PK\x05\x06", "12345678{", strings.Repeat("PK\x03\x04", 1000)} {
		for _, name := range []string{"x", "x.pt", "x.safetensors", "__0_0.distcp"} {
			got, err := Parse(strings.NewReader(text), int64(len(text)), name)
			must.NoError(t, err)
			must.Eq(t, raw(int64(len(text))), got)
		}
	}
	must.SliceEmpty(t, raw(0).Sections)
}

func TestReadErrors(t *testing.T) {
	files := map[string][]byte{
		"x.pt":          checkpoint("x", true).bytes(),
		"x.safetensors": safetensorsFile(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2),
		"x.distcp":      items().bytes(),
	}
	for name, b := range files {
		// A file that has become shorter than its size was.
		_, err := Parse(bytes.NewReader(b[:7]), int64(len(b)), name)
		must.ErrorIs(t, err, io.ErrUnexpectedEOF)
		must.ErrorIs(t, Complete(bytes.NewReader(b[:7]), int64(len(b)), name), io.ErrUnexpectedEOF)
		// A read that fails, each in turn.
		for calls := 0; ; calls++ {
			must.Less(t, 1000, calls)
			r := &failing{r: bytes.NewReader(b), left: calls}
			if _, err = Parse(r, int64(len(b)), name); err == nil {
				must.Greater(t, 1, calls)
				break
			}
			must.ErrorIs(t, err, errDisk)
		}
	}
}

var errDisk = errors.New("disk on fire")

// failing fails after some reads.
type failing struct {
	r    io.ReaderAt
	left int
}

func (f *failing) ReadAt(b []byte, off int64) (int, error) {
	f.left--
	if f.left < 0 {
		return 0, errDisk
	}
	return f.r.ReadAt(b, off)
}

func TestComplete(t *testing.T) {
	safe := safetensorsFile(`{"w":{"dtype":"U8","shape":[20],"data_offsets":[0,20]},"e":{"dtype":"U8","shape":[0],"data_offsets":[20,20]}}`, 20)
	files := map[string][]byte{
		"x.pt":          checkpoint("x", true).bytes(),
		"x.ckpt":        torchFile("archive", floats("0", 100), map[string]int64{"0": 400}).bytes(),
		"x.safetensors": safe,
	}
	for name, b := range files {
		must.NoError(t, Complete(bytes.NewReader(b), int64(len(b)), name))
		for n := range len(b) {
			err := Complete(bytes.NewReader(b[:n]), int64(n), name)
			must.ErrorIs(t, err, ErrIncomplete, must.Sprint(name, n))
		}
	}
	// Under another name, a file shows what it is after its first bytes.
	for n := bytes.IndexByte(safe, '}'); n < len(safe); n++ {
		err := Complete(bytes.NewReader(safe[:n]), int64(n), "blob")
		must.Eq(t, n >= len(safe)-20, errors.Is(err, ErrIncomplete))
	}
	for name, text := range map[string]string{
		"x.txt": "", "x.bin": "", "x": "P", "notes.pt": "hello", "lfs.safetensors": "version https://git-lfs.github.com/spec/v1",
	} {
		must.NoError(t, Complete(strings.NewReader(text), int64(len(text)), name), must.Sprint(name))
	}
	must.ErrorIs(t, Complete(strings.NewReader("PK"), 2, "x.bin"), ErrIncomplete)
}

func TestUnique(t *testing.T) {
	n := names{}
	got := []string{}
	for _, name := range []string{"a", "a#1", "a", "a", "b", "a#1", "\xff", "\uFFFD"} {
		got = append(got, n.unique(name))
	}
	must.Eq(t, []string{"a", "a#1", "a#2", "a#3", "b", "a#1#1", "\uFFFD", "\uFFFD#1"}, got)
	slices.Sort(got)
	must.Eq(t, len(got), len(slices.Compact(got)))
}
