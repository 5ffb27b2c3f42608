package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/spf13/pflag"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// input is one of a command's figures. It is a flag and, with underscores for dashes, an attribute of the command's file; a
// flag goes before the file. Its text is read when all are known, so that all faults are reported together.
type input struct {
	name  string
	kind  inputKind
	usage string
	given string // where it was given, as faults name it; "" for not at all
	text  string
}

// inputKind is how an input is written.
type inputKind string

const (
	kindNumber    inputKind = "number"
	kindDuration  inputKind = "duration"
	kindDurations inputKind = "durations"
	kindSize      inputKind = "size"
	kindRange     inputKind = "low..high"
	kindText      inputKind = "string"
	kindBool      inputKind = "bool"
)

var _ pflag.Value = (*input)(nil)

// String, Set and Type make it a flag.
func (i *input) String() string { return i.text }
func (i *input) Type() string   { return string(i.kind) }
func (i *input) Set(text string) error {
	i.text, i.given = text, "--"+i.name
	return nil
}

// inputs are the figures of a command, with the faults that were found in them.
type inputs struct {
	list    []*input
	faults  []error
	faulted map[string]bool // by name, so that one fault is not told twice
}

// addTo makes the inputs flags.
func (in *inputs) addTo(flags *pflag.FlagSet) {
	for _, i := range in.list {
		flag := flags.VarPF(i, i.name, "", i.usage)
		if i.kind == kindBool {
			flag.NoOptDefVal = "true"
		}
	}
}

func (in *inputs) find(name string) *input {
	n := slices.IndexFunc(in.list, func(i *input) bool { return i.name == name })
	if n < 0 {
		return nil
	}
	return in.list[n]
}

// given says whether an input was given.
func (in *inputs) given(name string) bool { return in.find(name).given != "" }

// where is how faults name an input.
func (in *inputs) where(name string) string {
	if i := in.find(name); i != nil && i.given != "" {
		return i.given
	}
	return "--" + name
}

func (in *inputs) fault(name, format string, args ...any) {
	in.mark(name)
	in.faults = append(in.faults, fmt.Errorf("%s: %s", in.where(name), fmt.Sprintf(format, args...)))
}

func (in *inputs) mark(name string) {
	if in.faulted == nil {
		in.faulted = map[string]bool{}
	}
	in.faulted[name] = true
}

// readFile takes the inputs that are not given as flags from HCL. It fails where that is no HCL; attributes that are not
// known are faults like others.
func (in *inputs) readFile(name string, text []byte) error {
	file, diags := hclparse.NewParser().ParseHCL(text, name)
	var attributes hcl.Attributes
	if !diags.HasErrors() {
		attributes, diags = file.Body.JustAttributes()
	}
	if diags.HasErrors() {
		return describeHCL(name, diags)
	}
	byLine := func(a, b *hcl.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte }
	for _, a := range slices.SortedFunc(maps.Values(attributes), byLine) {
		at := fmt.Sprintf("%s:%d: %s", name, a.NameRange.Start.Line, a.Name)
		i := in.find(strings.ReplaceAll(a.Name, "_", "-"))
		if i == nil || strings.Contains(a.Name, "-") {
			in.faults = append(in.faults, fmt.Errorf("%s: not known; an attribute is a flag without its dashes, see --help", at))
			continue
		}
		value, diags := a.Expr.Value(nil)
		if !diags.HasErrors() {
			text, err := convert.Convert(value, cty.String)
			if err == nil && text.IsKnown() && !text.IsNull() {
				if i.given == "" {
					i.text, i.given = text.AsString(), at
				}
				continue
			}
		}
		if i.given == "" {
			i.text, i.given = "0", at // it is not missing
		}
		in.mark(i.name)
		in.faults = append(in.faults, fmt.Errorf("%s: not a plain value; give a number, a string or a bool", at))
	}
	return nil
}

// describeHCL says in words what is wrong with a file.
func describeHCL(name string, diags hcl.Diagnostics) error {
	var errs []error
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %s", name, d.Subject.Start.Line, d.Summary, d.Detail))
		}
	}
	return errors.Join(errs...)
}

// The readers of texts return 0 where nothing was given, and where that is a fault.

func (in *inputs) number(name string) float64 {
	i := in.find(name)
	if i.given == "" {
		return 0
	}
	x, err := strconv.ParseFloat(i.text, 64)
	if err != nil && !math.IsInf(x, 0) {
		in.fault(name, "%q is no number; write it like 1000 or 0.8", i.text)
		return 0
	}
	return x
}

// hours reads a duration.
func (in *inputs) hours(name string) float64 {
	i := in.find(name)
	if i.given == "" {
		return 0
	}
	return in.parseHours(name, i.text)
}

func (in *inputs) parseHours(name, text string) float64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		in.fault(name, "%q is no duration; write it with a unit, like 2h, 30m or 1.5s", text)
		return 0
	}
	return d.Hours()
}

// hoursList reads durations that are parted by commas.
func (in *inputs) hoursList(name string) []float64 {
	i := in.find(name)
	if i.given == "" {
		return nil
	}
	var out []float64
	for text := range strings.SplitSeq(i.text, ",") {
		faults := len(in.faults)
		h := in.parseHours(name, strings.TrimSpace(text))
		if len(in.faults) > faults {
			continue
		}
		if h <= 0 {
			in.fault(name, "%q is not more than 0; give an interval like 1h", text)
			continue
		}
		out = append(out, h)
	}
	return out
}

// bytes reads a size.
func (in *inputs) bytes(name string) float64 {
	i := in.find(name)
	if i.given == "" {
		return 0
	}
	n, err := humanize.ParseBytes(i.text)
	if err != nil {
		in.fault(name, "%q is no size; write it like 800GiB or 1.2GB, up to %s", i.text, humanize.IBytes(math.MaxUint64))
		return 0
	}
	return float64(n)
}

// bounds reads a range; false where none was given.
func (in *inputs) bounds(name string) (low, high float64, ok bool) {
	i := in.find(name)
	if i.given == "" {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(i.text, "..")
	low, err1 := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	if err := errors.Join(err1, err2); err != nil {
		in.fault(name, "%q is no range; write it like 0.7..0.9", i.text)
		return 0, 0, false
	}
	return low, high, true
}

// flag reads a bool.
func (in *inputs) flag(name string) bool {
	i := in.find(name)
	if i.given == "" {
		return false
	}
	b, err := strconv.ParseBool(i.text)
	if err != nil {
		in.fault(name, "%q is neither true nor false; give one of them", i.text)
	}
	return b
}
