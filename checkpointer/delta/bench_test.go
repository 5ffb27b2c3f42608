package delta

import (
	"math/rand/v2"
	"testing"
)

// benchmarks are blocks of full size.
func benchmarks(b *testing.B, run func(b *testing.B, e *Encoder, cur, ref []byte, elem Elem)) {
	efforts := map[string]Effort{"auto": Auto, "fast": Fast, "small": Small}
	elements := map[string]Elem{"fp32": F32, "bf16": BF16}
	for _, shape := range []string{"weights", "quiet"} {
		for _, elem := range []string{"fp32", "bf16"} {
			cur, ref := blockKinds[shape](rand.New(rand.NewPCG(1, 2)), elements[elem], MaxElems)
			for _, effort := range []string{"fast", "auto", "small"} {
				e := NewEncoder(efforts[effort])
				b.Run(shape+"/"+elem+"/alone/"+effort, func(b *testing.B) { run(b, e, cur, nil, elements[elem]) })
				b.Run(shape+"/"+elem+"/delta/"+effort, func(b *testing.B) { run(b, e, cur, ref, elements[elem]) })
			}
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	benchmarks(b, func(b *testing.B, e *Encoder, cur, ref []byte, elem Elem) {
		var enc []byte
		b.SetBytes(int64(len(cur)))
		for b.Loop() {
			enc, _ = e.Encode(enc[:0], cur, ref, elem)
		}
		b.ReportMetric(float64(len(enc))/float64(len(cur)), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	d := NewDecoder()
	benchmarks(b, func(b *testing.B, e *Encoder, cur, ref []byte, elem Elem) {
		enc, _ := e.Encode(nil, cur, ref, elem)
		out := make([]byte, len(cur))
		b.SetBytes(int64(len(cur)))
		for b.Loop() {
			if err := d.Decode(out, enc, ref); err != nil {
				b.Fatal(err)
			}
		}
	})
}
