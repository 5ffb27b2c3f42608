package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/api"
)

// maxShown is how many bytes of a wrong value an error shows.
const maxShown = 80

// decoder reads a JSON object field by field: encoding/json would end at the first fault.
type decoder struct {
	strict bool // fields that do not exist are faults
	faults []error
	wrong  []string // fields that have a fault
}

// decode reads an object into the struct that v points to, and reports all faults of it.
func (d *decoder) decode(b []byte, v any) error {
	d.object("", b, reflect.ValueOf(v).Elem())
	return errors.Join(d.faults...)
}

func (d *decoder) fault(field, format string, args ...any) {
	d.wrong = append(d.wrong, field)
	d.faults = append(d.faults, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// object reads an object whose fields are told with a prefix, such as "consul.".
func (d *decoder) object(prefix string, b []byte, v reflect.Value) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		d.faults = append(d.faults, notObject(b, err))
		return
	}
	fields := fieldsOf(v)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if known, ok := lookUp(fields, name); ok {
			d.field(prefix+known, given[name], fields[known])
		} else {
			unknown = append(unknown, prefix+name)
		}
	}
	if d.strict && len(unknown) > 0 {
		d.fault(strings.Join(unknown, ", "), "unknown: remove it or correct its name to one of %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
	}
}

func (d *decoder) field(name string, b []byte, v reflect.Value) {
	if nested(v.Type()) && bytes.HasPrefix(b, []byte("{")) {
		v.Set(reflect.New(v.Type().Elem()))
		d.object(name+".", b, v.Elem())
		return
	}
	if json.Unmarshal(b, v.Addr().Interface()) != nil {
		d.fault(name, "%s is wrong: give %s", shown(name, b), expected(v))
	}
}

// notObject says why something is no object.
func notObject(b []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("line %d is not JSON: %w", 1+bytes.Count(b[:min(int(syntax.Offset), len(b))], []byte("\n")), err)
	}
	return fmt.Errorf("%s is not a JSON object: give one in braces, {…}", shown("", b))
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		out[name] = v.Field(i)
	}
	return out
}

// lookUp finds a field as encoding/json does, the exact name before one in other letters.
func lookUp(fields map[string]reflect.Value, name string) (string, bool) {
	if _, ok := fields[name]; ok {
		return name, true
	}
	for known := range fields {
		if strings.EqualFold(known, name) {
			return known, true
		}
	}
	return "", false
}

func nested(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// shown is a wrong value for an error. A token is a secret, even a wrong one.
func shown(name string, b []byte) string {
	if strings.HasSuffix(name, "token") {
		return "the value"
	}
	if len(b) > maxShown {
		return string(b[:maxShown]) + "…"
	}
	return string(b)
}

// expected says what a field takes.
func expected(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[api.Duration]() {
		return `a duration in quotes, such as "10m"`
	}
	if v.Type() == reflect.TypeFor[api.Interval]() {
		return `a duration in quotes, such as "10m", or "auto"`
	}
	switch k := v.Kind(); {
	case k == reflect.String:
		return "a text in quotes"
	case k == reflect.Bool:
		return "true or false"
	case v.CanInt():
		return "a whole number"
	case v.CanUint():
		return "a whole number from 0"
	case v.CanFloat():
		return "a number"
	case k == reflect.Struct:
		return `a time in quotes, such as "2025-01-31T12:00:00Z"`
	}
	return "an object in braces, {…}"
}
