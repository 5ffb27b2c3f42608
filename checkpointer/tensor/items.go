package tensor

import (
	"io"
	"strconv"
)

// parseItems finds the tensors of a *.distcp file; it reports false if there are none.
func parseItems(r io.ReaderAt, size int64) (Layout, bool, error) {
	w := walker{r: r, size: size, budget: 2*size + 1<<20}
	var spans []span
	tensors, objects := 0, 0
	for at := int64(0); ; {
		start, ok, err := w.next(at)
		if err != nil {
			return Layout{}, false, err
		}
		if !ok {
			break
		}
		end, ok, err := w.end(start)
		if err != nil {
			return Layout{}, false, err
		}
		if !ok {
			at = start + int64(len(localMagic))
			continue
		}
		z, ok, err := readTorch(io.NewSectionReader(r, start, end-start), end-start)
		if err != nil {
			return Layout{}, false, err
		}
		at = end
		if !ok {
			continue
		}
		prefix := "object." + strconv.Itoa(objects)
		if z.tensor {
			prefix = "tensor." + strconv.Itoa(tensors)
			tensors++
		} else {
			objects++
		}
		for _, s := range z.spans {
			s.off += start
			if s.name == rootName && z.tensor {
				s.name = prefix
				s.kind = Other // what it belongs to is not written here
			} else {
				s.name = prefix + "." + s.name
			}
			spans = append(spans, s)
		}
		if len(spans) > maxSections {
			return Layout{}, false, nil
		}
	}
	if len(spans) == 0 {
		return Layout{}, false, nil
	}
	l, ok := assemble(FormatTorch, size, spans)
	return l, ok, nil
}
