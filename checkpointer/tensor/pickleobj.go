package tensor

// container handles opcodes that make and fill lists, tuples, sets and dictionaries.
func (m *machine) container(op byte) bool {
	switch op {
	case ']', '}', 0x8f: // EMPTY_LIST, EMPTY_DICT, EMPTY_SET
		m.pushNode()
	case ')': // EMPTY_TUPLE
		m.pushTuple(nil)
	case 't': // TUPLE
		m.pushTuple(m.popMark())
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		n := int(op - 0x84)
		var items [3]any
		for i := range n {
			items[n-1-i] = m.pop()
		}
		m.pushTuple(items[:n])
	case 'l', 0x91: // LIST, FROZENSET
		items := m.popMark()
		n := &node{}
		for _, v := range items {
			n.add(v)
		}
		*m.pushNode() = *n
	case 'd': // DICT
		items := m.popMark()
		n := &node{}
		m.setAll(n, items)
		*m.pushNode() = *n
	case 'a': // APPEND
		v := m.pop()
		if n, ok := m.top().(*node); ok {
			n.add(v)
		}
	case 'e', 0x90: // APPENDS, ADDITEMS
		items := m.popMark()
		if n, ok := m.top().(*node); ok {
			for _, v := range items {
				n.add(v)
			}
		}
	case 's': // SETITEM
		v, key := m.pop(), m.pop()
		if n, ok := m.top().(*node); ok {
			m.set(n, key, v)
		}
	case 'u': // SETITEMS
		items := m.popMark()
		if n, ok := m.top().(*node); ok {
			m.setAll(n, items)
		}
	default:
		return false
	}
	return true
}

// setAll sets the items of a dictionary; keys and values alternate.
func (m *machine) setAll(n *node, items []any) {
	if len(items)%2 != 0 {
		m.bad = true
		return
	}
	for i := 0; i < len(items); i += 2 {
		m.set(n, items[i], items[i+1])
	}
}

// object handles opcodes that name, call and fill what is no container of the language.
func (m *machine) object(op byte) bool {
	switch op {
	case 'c': // GLOBAL
		module := m.line()
		m.push(&global{module, m.line()})
	case 0x93: // STACK_GLOBAL
		name, module := m.pop(), m.pop()
		n, _ := name.(string)
		s, _ := module.(string)
		m.push(&global{s, n})
	case 0x82: // EXT1
		m.take(1)
		m.push(opaque{})
	case 0x83: // EXT2
		m.take(2)
		m.push(opaque{})
	case 0x84: // EXT4
		m.take(4)
		m.push(opaque{})
	case 'Q': // BINPERSID
		m.push(m.persistent(m.pop()))
	case 'R': // REDUCE
		args, fn := m.pop(), m.pop()
		m.called(call(fn, args))
	case 0x81: // NEWOBJ
		args, class := m.pop(), m.pop()
		m.called(rebuild(class, args))
	case 0x92: // NEWOBJ_EX
		named, args, class := m.pop(), m.pop(), m.pop()
		n := &node{}
		n.extend(rebuild(class, args))
		n.extend(named)
		m.called(n)
	case 'i': // INST
		g := &global{m.line(), m.line()}
		m.called(rebuild(g, newTuple(append([]any(nil), m.popMark()...))))
	case 'o': // OBJ
		items := m.popMark()
		if len(items) == 0 {
			m.bad = true
			break
		}
		m.called(rebuild(items[0], newTuple(append([]any(nil), items[1:]...))))
	case 'b': // BUILD
		state := m.pop()
		if n, ok := m.top().(*node); ok {
			n.extend(state)
		}
	default:
		return false
	}
	return true
}

// called pushes the result of a call.
func (m *machine) called(v any) {
	m.values++
	m.push(v)
}
