package tensor

import (
	"slices"
	"strconv"
)

// maxPath bounds a tensor's name, in bytes; of a longer path the end is kept.
const maxPath = 1024

// object is the storages of a pickled object.
type object struct {
	storages []*storage // those to which a path leads, in the order in which the object's parts are met
	byKey    map[string]*storage
	tensor   bool // the object is a tensor itself; its name is then empty
}

// textBudget bounds the bytes of names made from a pickle of n bytes: they can repeat what the pickle has once. Honest
// files stay far below.
func textBudget(n int) int { return 16*n + maxPath }

// link is one component of a path. The root has no parent and is none.
type link struct {
	parent *link
	name   string
	index  int // the component if name is empty
}

// nameStorages interprets a pickle and names the storages after the first path that leads to each. It reports false,
// and returns nothing, for a pickle that is damaged or too large.
func nameStorages(pickle []byte) (object, bool) {
	m := machine{buf: pickle, limit: maxValues, storages: map[string]*storage{}}
	root, ok := m.run()
	if !ok {
		return object{}, false
	}
	o := object{byKey: m.storages}
	_, o.tensor = root.(*storage)
	// Every container is entered once, so that the work is bounded by what the pickle holds.
	budget := textBudget(len(pickle))
	type visit struct {
		value any
		path  *link
	}
	todo := []visit{{root, &link{}}}
	enter := func(parent *link, children []child) {
		for _, c := range slices.Backward(children) {
			path := parent
			if c.name != "" || c.index >= 0 {
				path = &link{parent: parent, name: c.name, index: c.index}
			}
			todo = append(todo, visit{c.value, path})
		}
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch x := v.value.(type) {
		case *storage:
			if x.found {
				continue
			}
			x.found = true
			x.name = v.path.String()
			if budget -= len(x.name); budget < 0 {
				return object{}, false
			}
			o.storages = append(o.storages, x)
		case *node:
			if !x.visited {
				x.visited = true
				enter(v.path, x.children)
			}
		case *tuple:
			if x.deep && !x.visited {
				x.visited = true
				for i, item := range slices.Backward(x.items) {
					if holds(item) {
						todo = append(todo, visit{item, &link{parent: v.path, index: i}})
					}
				}
			}
		}
	}
	for key, s := range o.byKey {
		if !s.found {
			delete(o.byKey, key)
		}
	}
	return o, true
}

// String joins the components with points.
func (l *link) String() string {
	var parts []string
	length := 0
	for ; l.parent != nil && length < maxPath; l = l.parent {
		part := l.name
		if part == "" {
			part = strconv.Itoa(l.index)
		}
		part = part[max(0, len(part)-maxPath):]
		parts = append(parts, part)
		length += len(part) + 1
	}
	path := make([]byte, 0, length)
	for i, part := range slices.Backward(parts) {
		path = append(path, part...)
		if i > 0 {
			path = append(path, '.')
		}
	}
	return string(path[max(0, len(path)-maxPath):])
}
