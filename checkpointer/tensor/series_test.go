package tensor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// series is the directory of the real checkpoints, or skips the test.
func series(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{os.Getenv("SPOTTER_CHECKPOINTS"), "../../../shared/data/checkpoints"} {
		if _, err := os.Stat(filepath.Join(dir, "map.json")); dir != "" && err == nil {
			return dir
		}
	}
	t.Skip("no checkpoint series: set SPOTTER_CHECKPOINTS to its directory")
	return ""
}

// parseFile parses a file of the disk and checks what holds for every layout and every complete file.
func parseFile(t *testing.T, path string) Layout {
	t.Helper()
	f, err := os.Open(path)
	must.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	must.NoError(t, err)
	l, err := Parse(f, st.Size(), filepath.Base(path))
	must.NoError(t, err)
	checkLayout(t, l, st.Size())
	must.NoError(t, Complete(f, st.Size(), filepath.Base(path)))
	must.ErrorIs(t, Complete(f, st.Size()-1, filepath.Base(path)), ErrIncomplete)
	return l
}

// tensors are the sections with a name.
func tensors(l Layout) map[string]Section {
	m := map[string]Section{}
	for _, s := range l.Sections {
		if s.Name != "" {
			m[s.Name] = s
		}
	}
	return m
}

func TestSeries(t *testing.T) {
	dir := series(t)
	b, err := os.ReadFile(filepath.Join(dir, "map.json"))
	must.NoError(t, err)
	var mapped []struct{ Key, Kind, Name string }
	must.NoError(t, json.Unmarshal(b, &mapped))
	must.Len(t, 160, mapped)
	kinds := map[string]Kind{"w": Weight, "m": Momentum, "v": Variance, "step": Other}

	files, err := filepath.Glob(filepath.Join(dir, "ckpt_*.pt"))
	must.NoError(t, err)
	must.Len(t, 6, files)
	var before map[string]Section
	for _, file := range files {
		got := tensors(parseFile(t, file))
		must.MapLen(t, 161, got)
		bytes := map[Kind]int64{}
		for _, want := range mapped {
			name := "optim.state." + want.Name
			if want.Kind == "w" {
				name = "model." + want.Name
			}
			must.MapContainsKey(t, got, name)
			must.Eq(t, kinds[want.Kind], got[name].Kind, must.Sprint(name))
			must.Eq(t, F32, got[name].DType)
			bytes[got[name].Kind] += got[name].Len
		}
		must.Eq(t, map[Kind]int64{Weight: 1610560, Momentum: 1610560, Variance: 1610560, Other: 160}, bytes)
		must.Eq(t, Section{Name: "rng", DType: U8, Len: 5056}, got["rng"])
		if before != nil {
			must.Eq(t, before, got)
		}
		before = got

		safe := tensors(parseFile(t, strings.NewReplacer("ckpt_", "model_", ".pt", ".safetensors").Replace(file)))
		must.MapLen(t, 40, safe)
		for name, s := range safe {
			s.Name = "model." + name
			must.Eq(t, s, got[s.Name])
		}
	}
}

// The places of the tensors are right if the same weights lie there as in the safetensors file of the same step.
func TestSeriesContent(t *testing.T) {
	dir := series(t)
	read := func(file, prefix string) map[string]string {
		path := filepath.Join(dir, file)
		b, err := os.ReadFile(path)
		must.NoError(t, err)
		m := map[string]string{}
		off := int64(0)
		for _, s := range parseFile(t, path).Sections {
			if name, ok := strings.CutPrefix(s.Name, prefix); ok && s.Kind == Weight {
				m[name] = string(b[off : off+s.Len])
			}
			off += s.Len
		}
		return m
	}
	pt, safe := read("ckpt_0300.pt", "model."), read("model_0300.safetensors", "")
	must.MapLen(t, 40, pt)
	must.True(t, len(safe) == len(pt))
	for name, data := range pt {
		must.True(t, safe[name] == data, must.Sprint(name))
	}
}

func BenchmarkParse(b *testing.B) {
	for _, file := range []string{"ckpt_0300.pt", "model_0300.safetensors"} {
		b.Run(filepath.Ext(file), func(b *testing.B) {
			f, err := os.Open(filepath.Join("../../../shared/data/checkpoints", file))
			if err != nil {
				b.Skip("no checkpoint series")
			}
			defer f.Close()
			st, err := f.Stat()
			must.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, err := Parse(f, st.Size(), file)
				must.NoError(b, err)
			}
		})
	}
}
