package tensor

import (
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// torchDir is a directory with files that PyTorch wrote; without it the test is skipped.
func torchDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// Debian's python3-torch belongs to this interpreter.
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/make.py", dir).CombinedOutput()
	var exit *exec.ExitError
	if errors.Is(err, os.ErrNotExist) || errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip("no PyTorch here")
	}
	must.NoError(t, err, must.Sprint(string(out)))
	return dir
}

// saved is what the program that wrote a file says of a storage.
type saved struct {
	DType string
	Bytes int64
	CRC   uint32
}

func TestTorch(t *testing.T) {
	dir := torchDir(t)
	types := maps.Clone(torchTypes)
	types["complex64"], types["complex128"] = F32, F64

	descriptions, err := filepath.Glob(filepath.Join(dir, "*.json"))
	must.NoError(t, err)
	must.Greater(t, 20, len(descriptions))
	for _, description := range descriptions {
		file := strings.TrimSuffix(description, ".json")
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(description)
			must.NoError(t, err)
			want := map[string]saved{}
			must.NoError(t, json.Unmarshal(text, &want))
			if alone, ok := want[""]; ok {
				want = map[string]saved{rootName: alone}
			}
			data, err := os.ReadFile(file)
			must.NoError(t, err)
			l := parseFile(t, file)
			must.Eq(t, FormatTorch, l.Format)
			got := map[string]saved{}
			off := int64(0)
			for _, s := range l.Sections {
				if s.Name != "" {
					must.Eq(t, types[want[s.Name].DType], s.DType, must.Sprint(s.Name))
					got[s.Name] = saved{want[s.Name].DType, s.Len, crc32.ChecksumIEEE(data[off : off+s.Len])}
				}
				off += s.Len
			}
			must.Eq(t, want, got)
		})
	}

	t.Run("kinds", func(t *testing.T) {
		for optimizer, want := range map[string]map[string]Kind{
			"Adam":    {"exp_avg": Momentum, "exp_avg_sq": Variance, "step": Other},
			"AdamW":   {"exp_avg": Momentum, "exp_avg_sq": Variance, "max_exp_avg_sq": Variance, "step": Other},
			"SGD":     {"momentum_buffer": Momentum},
			"RMSprop": {"square_avg": Variance},
			"Adagrad": {"sum": Variance, "step": Other},
		} {
			first := tensors(parseFile(t, filepath.Join(dir, optimizer+"_0.pt")))
			later := tensors(parseFile(t, filepath.Join(dir, optimizer+"_20000.pt")))
			for name, s := range first { // what was there is still there, under the same name
				must.Eq(t, s, later[name])
			}
			got := map[string]Kind{}
			for name, s := range later {
				switch {
				case strings.HasPrefix(name, "model.") && !strings.HasSuffix(name, "num_batches_tracked"):
					must.Eq(t, Weight, s.Kind, must.Sprint(name))
				case strings.HasPrefix(name, "optim."):
					got[name[strings.LastIndexByte(name, '.')+1:]] = s.Kind
				default:
					must.Eq(t, Other, s.Kind, must.Sprint(name))
				}
			}
			must.Eq(t, want, got, must.Sprint(optimizer))
		}
	})

	t.Run("module", func(t *testing.T) {
		got := tensors(parseFile(t, filepath.Join(dir, "module.pt")))
		must.MapLen(t, 30, got)
		must.Eq(t, Weight, got["_modules.body._modules.11._parameters.weight"].Kind)
	})
	t.Run("script", func(t *testing.T) {
		got := tensors(parseFile(t, filepath.Join(dir, "script.pt")))
		must.MapLen(t, 2, got)
		must.Eq(t, Section{Name: "weight", Kind: Weight, DType: F32, Len: 36}, got["weight"])
	})
	t.Run("legacy", func(t *testing.T) {
		f, err := os.Open(filepath.Join(dir, "legacy.pt"))
		must.NoError(t, err)
		defer f.Close()
		st, err := f.Stat()
		must.NoError(t, err)
		l, err := Parse(f, st.Size(), "legacy.pt")
		must.NoError(t, err)
		must.Eq(t, raw(st.Size()), l)
		must.NoError(t, Complete(f, st.Size(), "legacy.pt"))
	})
	t.Run("distributed", func(t *testing.T) {
		got := tensors(parseFile(t, filepath.Join(dir, "__0_0.distcp")))
		must.MapLen(t, 29, got) // 27 parameters
		must.Eq(t, Section{Name: "object.0.rng", DType: U8, Len: 5056}, got["object.0.rng"])
		must.Eq(t, 50*8*4, got["tensor.0"].Len)
		must.Eq(t, Section{Name: "tensor.27", DType: F32, Len: 1_200_000}, got["tensor.27"])
	})
}
