package market

import (
	"errors"
	"fmt"
)

// maxFaults is how many faults of one input are told one by one; of the rest only the number is.
const maxFaults = 20

// faults collects what is wrong with an input, so that all of it is told at once.
type faults struct {
	told []error
	more int
}

func (f *faults) add(format string, args ...any) {
	if len(f.told) == maxFaults {
		f.more++
		return
	}
	f.told = append(f.told, fmt.Errorf(format, args...))
}

// err is nil without faults, else all of them, a line each, after what was being done.
func (f *faults) err(what string) error {
	if len(f.told) == 0 {
		return nil
	}
	all := f.told
	if f.more > 0 {
		all = append(all[:len(all):len(all)], fmt.Errorf("and %d more faults of this kind", f.more))
	}
	return fmt.Errorf("%s: %w", what, errors.Join(all...))
}
