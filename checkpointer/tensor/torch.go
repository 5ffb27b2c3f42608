package tensor

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// torchZip is what a zip of torch.save holds.
type torchZip struct {
	spans  []span
	tensor bool // the object that was saved is a tensor
}

// rootName is the name of a tensor to which no path leads: it was saved alone.
const rootName = "tensor"

// parseTorch finds the tensors of a zip of torch.save that takes the whole file; it reports false for any other.
func parseTorch(r io.ReaderAt, size int64) (Layout, bool, error) {
	z, ok, err := readTorch(r, size)
	if err != nil || !ok {
		return Layout{}, false, err
	}
	l, ok := assemble(FormatTorch, size, z.spans)
	return l, ok, nil
}

// readTorch finds the tensors of a zip of torch.save; it reports false for anything else.
func readTorch(r io.ReaderAt, size int64) (torchZip, bool, error) {
	d, ok, err := findDirectory(r, size)
	if err != nil || !ok || d.base != 0 {
		return torchZip{}, false, err
	}
	list, ok, err := d.entries(r, size)
	if err != nil || !ok {
		return torchZip{}, false, err
	}
	folder, ok := archive(list)
	if !ok {
		return torchZip{}, false, nil
	}
	named, bigEndian, err := readObject(r, d.off, folder, list)
	if err != nil {
		return torchZip{}, false, err
	}
	z := torchZip{tensor: named.tensor}
	taken := names{}
	for _, s := range named.storages {
		s.name = taken.unique(cmp.Or(s.name, rootName))
	}
	for _, e := range list {
		key, data := strings.CutPrefix(e.name, folder+"data/")
		if !data || !e.plain || e.len == 0 {
			continue
		}
		off, ok, err := e.dataOffset(r, size, d.off)
		if err != nil || !ok {
			return torchZip{}, false, err
		}
		s := span{off: off, len: e.len}
		if st := named.byKey[key]; st != nil && !st.spent {
			st.spent = true
			s.name, s.dtype = st.name, st.dtype
			if bigEndian || st.bytes >= 0 && st.bytes != e.len {
				s.dtype = Bytes
			}
			s.kind = kindOf(s.name, s.dtype, e.len/int64(s.dtype.Width()))
		} else {
			s.name = taken.unique("data/" + key)
		}
		z.spans = append(z.spans, s)
	}
	return z, true, nil
}

// readObject reads data.pkl and byteorder. What cannot be understood gives no names.
func readObject(r io.ReaderAt, limit int64, folder string, list []entry) (named object, bigEndian bool, err error) {
	pickle, err := readEntry(r, limit, maxHeader, folder+"data.pkl", list)
	if err != nil {
		return object{}, false, err
	}
	order, err := readEntry(r, limit, 16, folder+"byteorder", list)
	if err != nil {
		return object{}, false, err
	}
	named, _ = nameStorages(pickle)
	return named, string(order) == "big", nil
}

// readEntry returns the data of the first entry of a name; none if that is missing, not plain, too long, or damaged.
func readEntry(r io.ReaderAt, limit, most int64, name string, list []entry) ([]byte, error) {
	i := slices.IndexFunc(list, func(e entry) bool { return e.name == name })
	if i < 0 || !list[i].plain || list[i].len > most {
		return nil, nil
	}
	off, ok, err := list[i].dataOffset(r, limit, limit)
	if err != nil || !ok {
		return nil, err
	}
	return readAt(r, limit, off, list[i].len)
}
