package forecast

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// alarms runs a detector over steps and returns where it alarmed.
func alarms(steps []float64) (at []int, kinds []string) {
	d := NewDetector()
	for i, r := range steps {
		if s, ok := d.Step(time.Unix(int64(i), 0), r); ok {
			at, kinds = append(at, i), append(kinds, s.Kind)
		}
	}
	return at, kinds
}

func TestDetectorFindsShifts(t *testing.T) {
	for name, c := range map[string]struct {
		mean, size float64 // of the steps after the shift
		kind       string
	}{
		"up":    {2, 1, "level up"},
		"down":  {-2, 1, "level down"},
		"wider": {0, 6, "larger moves"},
	} {
		t.Run(name, func(t *testing.T) {
			named := 0
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 9))
				steps := make([]float64, 140)
				for i := range steps {
					steps[i] = r.NormFloat64()
					if i >= 100 {
						steps[i] = c.mean + c.size*steps[i]
					}
				}
				at, kinds := alarms(steps)
				must.SliceNotEmpty(t, at)
				must.True(t, at[0] >= 100 && at[0] < 130, must.Sprintf("alarms at %v (%v)", at, kinds))
				if kinds[0] == c.kind {
					named++
				}
			}
			// Larger moves often drift for a while, so the kind may be mistaken at first.
			must.Greater(t, 13, named)
		})
	}
}

func TestDetectorIsSilentOnNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	steps := make([]float64, 100_000)
	for i := range steps {
		steps[i] = r.NormFloat64()
	}
	at, _ := alarms(steps)
	must.True(t, len(at) <= 20, must.Sprintf("%d false alarms", len(at)))
	t.Logf("%d alarms", len(at))
	jump := make([]float64, 100)
	for i := range jump {
		jump[i] = .1 * float64(1-2*(i%2))
	}
	jump[60] = 50
	at, _ = alarms(jump)
	must.SliceEmpty(t, at, must.Sprint("one jump is no regime"))
}
