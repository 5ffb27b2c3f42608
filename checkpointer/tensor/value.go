package tensor

import (
	"strconv"
	"strings"
)

// The values of an interpreted pickle are string, int64, bool, float64, opaque, *global, *tuple, *node and *storage. Of
// lists, dictionaries and objects only those items are kept in which tensors can be.

// opaque is a value of which only its being there is known.
type opaque struct{}

// global is a class or function.
type global struct{ module, name string }

// tuple is a tuple.
type tuple struct {
	items   []any
	deep    bool // a tensor can be in it
	visited bool
}

// node is a list, set, dictionary or object.
type node struct {
	children []child
	items    int // appended so far, with those not kept
	visited  bool
}

// child is an item of a node.
type child struct {
	name  string // key or attribute
	index int    // in a list, if name is empty; with a negative one, the value is found under the node's own path
	value any
}

// storage is the memory behind one or several tensors; it also stands for these tensors.
type storage struct {
	name  string // the path that leads to it
	dtype DType
	bytes int64 // its size, negative if that is not known
	found bool  // a path leads to it
	spent bool  // an entry of the zip has taken its name
}

// holds tells whether a tensor can be in a value, now or later.
func holds(v any) bool {
	switch x := v.(type) {
	case *storage, *node:
		return true
	case *tuple:
		return x.deep
	}
	return false
}

func newTuple(items []any) *tuple {
	t := &tuple{items: items}
	for _, item := range items {
		if holds(item) {
			t.deep = true
			break
		}
	}
	return t
}

// add appends an item to a list.
func (n *node) add(v any) {
	if holds(v) {
		n.children = append(n.children, child{index: n.items, value: v})
	}
	n.items++
}

// set sets an item of a dictionary.
func (m *machine) set(n *node, key, v any) {
	if !holds(v) {
		return
	}
	name := component(key)
	if _, isTuple := key.(*tuple); isTuple {
		m.keys += len(name)
		m.bad = m.bad || m.keys > textBudget(len(m.buf))
	}
	n.children = append(n.children, child{name: name, index: -1, value: v})
}

// extend adds what is found under the node's own path: an object's attributes.
func (n *node) extend(v any) {
	if holds(v) {
		n.children = append(n.children, child{index: -1, value: v})
	}
}

// component is the part of a path that a key makes.
func component(key any) string {
	switch k := key.(type) {
	case *tuple:
		const most = 8 // more do not make it clearer
		parts := make([]string, 0, most)
		for _, item := range k.items[:min(len(k.items), most)] {
			if _, nested := item.(*tuple); nested {
				parts = append(parts, "?")
			} else {
				parts = append(parts, component(item))
			}
		}
		return "(" + strings.Join(parts, ",") + ")"
	case string:
		return k[max(0, len(k)-maxPath):]
	case int64:
		return strconv.FormatInt(k, 10)
	case bool:
		return strconv.FormatBool(k)
	case float64:
		return strconv.FormatFloat(k, 'g', -1, 64)
	case *global:
		return k.name
	}
	return "?"
}

// storageType is a class of torch's storages: the elements' type, and how many bytes the count of elements counts.
type storageType struct {
	dtype DType
	bytes int64
}

var storageTypes = map[string]storageType{
	"DoubleStorage": {F64, 8}, "FloatStorage": {F32, 4}, "HalfStorage": {F16, 2}, "BFloat16Storage": {BF16, 2},
	"LongStorage": {I64, 8}, "IntStorage": {I32, 4}, "ShortStorage": {I16, 2}, "CharStorage": {I8, 1},
	"ByteStorage": {U8, 1}, "BoolStorage": {Bool, 1}, "UntypedStorage": {Bytes, 1},
	"ComplexFloatStorage": {F32, 8}, "ComplexDoubleStorage": {F64, 16},
	"QInt8Storage": {I8, 1}, "QUInt8Storage": {U8, 1}, "QInt32Storage": {I32, 4},
}

// torchTypes are the types of elements that have no class of storages.
var torchTypes = map[string]DType{
	"float8_e4m3fn": F8, "float8_e5m2": F8, "float8_e4m3fnuz": F8, "float8_e5m2fnuz": F8, "float8_e8m0fnu": F8,
	"uint16": I16, "uint32": I32, "uint64": I64,
	"float64": F64, "float32": F32, "float16": F16, "bfloat16": BF16,
	"int64": I64, "int32": I32, "int16": I16, "int8": I8, "uint8": U8, "bool": Bool,
}

// persistent is what a persistent id means; torch.save writes ("storage", class, key, device, elements).
func (m *machine) persistent(id any) any {
	t, ok := id.(*tuple)
	if !ok || len(t.items) < 5 || t.items[0] != "storage" {
		return opaque{}
	}
	key, ok := t.items[2].(string)
	if !ok {
		return opaque{}
	}
	if s := m.storages[key]; s != nil {
		return s
	}
	s := &storage{bytes: -1}
	if class, ok := t.items[1].(*global); ok {
		known := storageTypes[class.name]
		n, counted := t.items[4].(int64)
		if counted && known.bytes > 0 && n >= 0 && n <= 1<<62/known.bytes {
			s.dtype, s.bytes = known.dtype, n*known.bytes
		}
	}
	m.storages[key] = s
	return s
}

// call is the result of calling fn. Of torch's functions those are known that make tensors; all others, and classes,
// are taken to make an object that holds their arguments.
func call(fn, args any) any {
	items := []any(nil)
	if t, ok := args.(*tuple); ok {
		items = t.items
	}
	if g, ok := fn.(*global); ok && g.module == "torch._tensor" && len(items) == 4 &&
		(g.name == "_rebuild_from_type_v2" || g.name == "_rebuild_from_type") { // a subclass: function, class, arguments, state
		n := &node{}
		n.extend(rebuild(items[0], items[2]))
		if len(n.children) == 1 && !holds(items[3]) {
			return n.children[0].value
		}
		n.extend(items[3])
		return n
	}
	return rebuild(fn, args)
}

// rebuild is call without tensors of a subclass.
func rebuild(fn, args any) any {
	items := []any(nil)
	if t, ok := args.(*tuple); ok {
		items = t.items
	}
	var name string
	if g, ok := fn.(*global); ok && g.module == "torch._utils" && len(items) > 0 {
		name = g.name
	}
	switch name {
	case "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter":
		return items[0]
	case "_rebuild_tensor_v3": // storage, offset, size, stride, gradient, hooks, type
		s, ok := items[0].(*storage)
		if !ok || len(items) < 7 {
			return items[0]
		}
		if g, ok := items[6].(*global); ok && s.dtype == Bytes {
			s.dtype = torchTypes[g.name]
		}
		return s
	}
	n := &node{}
	for i, item := range items {
		if _, isStorage := item.(*storage); i == 0 && isStorage {
			n.extend(item) // a quantized tensor, a parameter with attributes
		} else if holds(item) {
			n.children = append(n.children, child{index: i, value: item})
		}
	}
	return n
}
