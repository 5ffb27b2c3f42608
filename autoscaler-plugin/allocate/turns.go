package allocate

import (
	"math"
	"time"
)

// ageFrom are the classes of how many ticks spot has been there, or away: each class begins at its entry. They widen,
// since hazards fall with age ever more slowly.
var ageFrom = [...]int{1, 2, 3, 4, 6, 9, 14, 21, 32, 50, 80}

// Classes is the number of classes of ages.
const Classes = len(ageFrom)

// Ends is the chance, by class of age, that a run of ticks in which spot is there, or away, ends with the next tick.
type Ends [Classes]float64

// Bounds of a chance: nothing is certain.
const (
	leastEnds = 1e-4
	mostEnds  = 0.95
)

// times is the chances of runs that end so many times as often.
func (e Ends) times(factor float64) Ends {
	for c := range e {
		e[c] = min(max(e[c]*factor, leastEnds), mostEnds)
	}
	return e
}

func ageClass(ticks int) int {
	class := 0
	for class+1 < Classes && ticks >= ageFrom[class+1] {
		class++
	}
	return class
}

// onward is the chance that a run that lives on for a tick enters the next class.
func onward(class int) float64 {
	if class+1 == Classes {
		return 0
	}
	return 1 / float64(ageFrom[class+1]-ageFrom[class])
}

// Lives is a distribution of the lengths of runs, such as a hazard.Weibull.
type Lives interface {
	// SurvivalFrom is the probability that a run of an age lasts for a further time.
	SurvivalFrom(age, further time.Duration) float64
}

// EndsOf are the chances of runs whose lengths follow a distribution. A run that is seen for the first time has begun in
// the middle of the tick before, in the mean.
func EndsOf(l Lives, tick time.Duration) Ends {
	var e Ends
	for class, from := range ageFrom {
		to := from + from/2 // of the last class, which is open
		if class+1 < Classes {
			to = ageFrom[class+1]
		}
		for age := from; age < to; age++ {
			e[class] += 1 - l.SurvivalFrom(time.Duration(float64(tick)*(float64(age)-.5)), tick)
		}
		e[class] /= float64(to - from)
	}
	return e.times(1)
}

// Steps is a distribution whose hazard is the same within each class of ages, of ticks of ten minutes: events per hour.
type Steps [Classes]float64

// stepTick is what the classes of Steps count in.
const stepTick = 10 * time.Minute

// SurvivalFrom implements Lives.
func (s Steps) SurvivalFrom(age, further time.Duration) float64 {
	events := 0.0
	for end := age + further; age < end; {
		class := ageClass(1 + int(age/stepTick))
		until := end
		if class+1 < Classes {
			until = min(end, time.Duration(ageFrom[class+1]-1)*stepTick)
		}
		events += s[class] * (until - age).Hours()
		age = until
	}
	return math.Exp(-events)
}

// Prior is how spot is taken to come and go in a zone before anything is seen of it.
type Prior struct{ Up, Down Lives }

// Priors, each pooled over all zones of a recording, from how often a run of an age ended in the next ten minutes.
var (
	// Prior2022 is of four zones of AWS us-west-2 in October 2022, K80 and V100, 300 hours.
	Prior2022 = Prior{
		Up:   Steps{1.66, 1.18, 0.682, 0.715, 0.569, 0.527, 0.292, 0.221, 0.206, 0.231, 0.17},
		Down: Steps{2.78, 1.42, 0.909, 0.845, 0.736, 0.37, 0.283, 0.314, 0.278, 0.151, 0.0302},
	}
	// Prior2023 is of nine zones of AWS us-east-1, us-east-2 and us-west-2 in February 2023, V100, 546 hours.
	Prior2023 = Prior{
		Up:   Steps{1.83, 1.43, 0.997, 0.797, 0.485, 0.323, 0.218, 0.202, 0.113, 0.14, 0.0476},
		Down: Steps{1.67, 1.6, 0.827, 0.611, 0.418, 0.279, 0.241, 0.347, 0.193, 0.172, 0.0821},
	}
)
