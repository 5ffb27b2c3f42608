package repository_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store/storetest"
)

// training is a run whose checkpoints change in every way that they may: tensors move by a little or not at all,
// come, go, grow, change their type and their file; files are renamed, some by the step in their name.
type training struct {
	rand  *rand.Rand
	files map[string][]*weight // by a name in which # stands for the step
	other map[string]string    // what is no tensor
	made  int
}

type weight struct {
	name, dtype string
	data        []byte
}

var widths = map[string]int{"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I64": 8, "U8": 1}

func newTraining(seed uint64) *training {
	s := &training{rand: rand.New(rand.NewPCG(seed, 3)), files: map[string][]*weight{}, other: map[string]string{}}
	for range 2 + s.rand.IntN(3) {
		s.addFile()
	}
	return s
}

func (s *training) pick(list ...string) string { return list[s.rand.IntN(len(list))] }

func (s *training) addFile() {
	s.made++
	name := fmt.Sprintf("%s%d%s.safetensors", s.pick("", "d/", "step_#/"), s.made, s.pick("", "-#"))
	for range 1 + s.rand.IntN(6) {
		s.files[name] = append(s.files[name], s.newWeight())
	}
}

// newWeight makes a tensor: most are small and share blocks, few have blocks of their own.
func (s *training) newWeight() *weight {
	s.made++
	w := &weight{name: fmt.Sprintf("layer.%d.weight", s.made), dtype: s.pick(slices.Sorted(maps.Keys(widths))...)}
	n := 1 + s.rand.IntN([]int{8, 300, 5_000, 40_000, 150_000}[s.rand.IntN(5)])
	if s.rand.IntN(40) == 0 {
		n = 1_200_000 / widths[w.dtype]
	}
	w.data = make([]byte, n*widths[w.dtype])
	for i := range w.data {
		w.data[i] = byte(s.rand.Uint32())
	}
	for i := 0; w.dtype == "F32" && i < n; i++ {
		binary.LittleEndian.PutUint32(w.data[4*i:], math.Float32bits(float32(s.rand.NormFloat64())))
	}
	return w
}

// step lets the run go on.
func (s *training) step() {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		list := s.files[name]
		switch s.rand.IntN(12) {
		case 0:
			delete(s.files, name)
			continue
		case 1: // another name
			delete(s.files, name)
			s.made++
			s.files[fmt.Sprintf("renamed%d", s.made)] = list
			continue
		case 2:
			s.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		case 3:
			list = list[min(1, len(list)):]
		case 4:
			list = slices.Insert(list, s.rand.IntN(len(list)+1), s.newWeight())
		}
		s.files[name] = list
		for i, w := range list {
			switch s.rand.IntN(8) {
			case 0: // it is another one now, of the same name
				list[i] = s.newWeight()
				list[i].name = w.name
			case 1, 2, 3:
				list[i] = &weight{w.name, w.dtype, s.moved(w)}
			}
		}
	}
	if len(s.files) == 0 || s.rand.IntN(6) == 0 {
		s.addFile()
	}
	s.other[fmt.Sprintf("note%d", s.rand.IntN(3))] = strings.Repeat(fmt.Sprint("text ", s.rand.IntN(4)), 1+s.rand.IntN(2_000))
	s.other["d/rng"] = fmt.Sprint(s.rand.Uint64())
}

// moved is a tensor after some steps of training.
func (s *training) moved(w *weight) []byte {
	out := slices.Clone(w.data)
	width := widths[w.dtype]
	for i := 0; i < len(out); i += width {
		if s.rand.IntN(3) > 0 {
			out[i] += byte(s.rand.IntN(4))
		}
	}
	return out
}

// checkpoint is the run's state as files.
func (s *training) checkpoint(step int64) memory {
	out := memory{fmt.Sprintf("ckpt_%d", step), map[string]string{}}
	maps.Copy(out.files, s.other)
	for name, list := range s.files {
		var head, data []byte
		for _, w := range list {
			head = fmt.Appendf(head, ",%q:{\"dtype\":%q,\"shape\":[%d],\"data_offsets\":[%d,%d]}", w.name, w.dtype, len(w.data)/widths[w.dtype], len(data), len(data)+len(w.data))
			data = append(data, w.data...)
		}
		head = append(append([]byte("{"), head[min(1, len(head)):]...), '}')
		out.files[strings.ReplaceAll(name, "#", fmt.Sprint(step))] = string(binary.LittleEndian.AppendUint64(nil, uint64(len(head)))) + string(head) + string(data)
	}
	for p := range out.files { // the directories that the files are in
		for i, c := range p {
			if c == '/' {
				out.files[p[:i+1]] = ""
			}
		}
	}
	return out
}

// links is the most links that a block of the store has.
func links(t *testing.T, s *storetest.Memory) int {
	t.Helper()
	most := 0
	list, err := s.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	for _, e := range list {
		b := object(t, s, e.Key)
		n, sum, err := pack.ParseFooter(b[len(b)-pack.FooterLen:])
		must.NoError(t, err)
		body := len(b) - pack.FooterLen - int(n)
		ix, err := pack.ParseIndex(b[body:body+int(n)], sum, int64(body))
		must.NoError(t, err)
		for _, d := range ix.Blocks {
			most = max(most, d.Links)
		}
	}
	return most
}

// held is what a store takes, in bytes.
func held(t *testing.T, s *storetest.Memory) (n int64) {
	t.Helper()
	list, err := s.List(t.Context(), "")
	must.NoError(t, err)
	for _, e := range list {
		n += e.Size
	}
	return n
}

// Whatever a series of checkpoints does, each is restored byte for byte, links stay within their limit, the store grows by
// what was reported, and by hardly more than the files have.
func TestSeries(t *testing.T) {
	efforts := []delta.Effort{delta.Auto, delta.Fast, delta.Small, delta.None}
	for seed := range uint64(budget(t, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := &storetest.Memory{}
			r, err := repository.Open(t.Context(), s, true)
			must.NoError(t, err)
			w := claim(t, r, "l")
			run := newTraining(seed)
			limit := 1 + int(seed)%4
			want := map[int64]memory{}
			before := int64(0)
			for step := int64(100); step < 107; step++ {
				run.step()
				w.Options = repository.Options{Effort: efforts[run.rand.IntN(4)], Links: limit, Workers: 1 + run.rand.IntN(3)}
				if run.rand.IntN(3) == 0 { // files of the snapshot before that are still there
					w.Options.Local = func(id string) repository.Source {
						for step, c := range want {
							if strings.HasSuffix(id, fmt.Sprintf("-%012d", step)) {
								return c
							}
						}
						return nil
					}
				}
				want[step] = run.checkpoint(step)
				p := publish(t, w, step, want[step])
				after := held(t, s)
				must.EqOp(t, after-before, p.StoredBytes)
				must.LessEq(t, p.RawBytes+p.RawBytes/1000+8_000, p.StoredBytes, must.Sprint("stored"))
				before = after
			}
			must.LessEq(t, limit, links(t, s))
			r, err = repository.Open(t.Context(), s, false)
			must.NoError(t, err)
			list, err := r.Snapshots(t.Context(), "l")
			must.NoError(t, err)
			must.Len(t, len(want), list)
			for _, sn := range list {
				got, err := content(t, r, sn)
				must.NoError(t, err)
				must.EqOp(t, want[sn.Step].name, got.name)
				same(t, want[sn.Step], got)
			}
		})
	}
}

// same compares two checkpoints, without printing megabytes.
func same(t *testing.T, want, got memory) {
	t.Helper()
	for p, c := range want.files {
		must.True(t, strings.HasSuffix(p, "/") || got.files[p] == c, must.Sprintf("%s differs", p))
	}
	for p := range got.files {
		must.MapContainsKey(t, want.files, p)
	}
}

// A checkpoint that did not change takes next to nothing, whatever the step in its names.
func TestUnchanged(t *testing.T) {
	s := &storetest.Memory{}
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	run := newTraining(5)
	for i := range 40 {
		run.files["model_#.safetensors"] = append(run.files["model_#.safetensors"], &weight{fmt.Sprint("w", i), "F32", run.newWeight().data})
		run.files["model_#.safetensors"][i].data = make([]byte, 4*(35_000+i))
		for j := range run.files["model_#.safetensors"][i].data {
			run.files["model_#.safetensors"][i].data[j] = byte(run.rand.Uint32())
		}
	}
	for step := range int64(4) {
		p := publish(t, w, 100+step, run.checkpoint(100+step))
		must.Greater(t, 5_000_000, p.RawBytes)
		if step > 0 {
			must.LessEq(t, p.RawBytes/1000, p.StoredBytes)
		}
	}
}
