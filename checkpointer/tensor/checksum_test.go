package tensor

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

// checkSums compares the checksums of a file with its data and with what the fields hold, and returns how many there are.
func checkSums(t *testing.T, data []byte) int {
	t.Helper()
	list, err := Checksums(bytes.NewReader(data), int64(len(data)))
	must.NoError(t, err)
	for _, c := range list {
		want := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(data[c.Off:c.Off+c.Len]))
		must.Greater(t, 1, len(c.Fields))
		for _, off := range c.Fields {
			must.Eq(t, want, data[off:off+4])
		}
	}
	return len(list)
}

func TestChecksums(t *testing.T) {
	folder := func(known, wide bool) *image {
		m := &image{}
		m.zip(record{name: "x/data.pkl", data: []byte("no pickle"), known: known, wide: wide},
			record{name: "x/data/0", data: bytes.Repeat([]byte("0123"), 99), known: known, wide: wide},
			record{name: "x/data/1", data: bytes.Repeat([]byte("3210"), 9), method: 8, known: known, wide: wide},
			record{name: "x/empty", data: []byte{}, known: known, wide: wide})
		return m
	}
	for _, wide := range []bool{false, true} {
		b := folder(false, wide).bytes()
		must.EqOp(t, 3, checkSums(t, b))
		list, err := Checksums(bytes.NewReader(b), int64(len(b)))
		must.NoError(t, err)
		must.Len(t, 2, list[1].Fields) // in the directory and behind the data
	}

	// Where the length stands before the data so does the checksum.
	b := folder(true, false).bytes()
	at := bytes.Index(b, []byte("x/data/0")) - localSize
	binary.LittleEndian.PutUint32(b[at+14:], crc32.ChecksumIEEE(bytes.Repeat([]byte("0123"), 99)))
	list, err := Checksums(bytes.NewReader(b), int64(len(b)))
	must.NoError(t, err)
	must.Len(t, 3, list)
	must.Eq(t, []int64{list[1].Fields[0], int64(at) + 14}, list[1].Fields)
	must.Eq(t, 4*99, list[1].Len)

	for name, b := range map[string][]byte{
		"empty": nil, "no zip": []byte("0123456789"), "cut short": b[:len(b)-1],
		"safetensors": safetensorsFile(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8),
		"another zip": func() []byte { m := &image{}; m.zip(record{name: "a.txt", data: []byte("a")}); return m.bytes() }(),
	} {
		list, err := Checksums(bytes.NewReader(b), int64(len(b)))
		must.NoError(t, err, must.Sprint(name))
		must.SliceEmpty(t, list, must.Sprint(name))
	}
	_, err = Checksums(bytes.NewReader(b[:len(b)/2]), int64(len(b)))
	must.Error(t, err)
}

func TestChecksums_Series(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(series(t), "ckpt_*.pt"))
	must.NoError(t, err)
	b, err := os.ReadFile(files[0])
	must.NoError(t, err)
	must.Greater(t, 160, checkSums(t, b))
}

// FuzzChecksums: whatever the bytes are, what is named lies in the file, and nothing outside it is read.
func FuzzChecksums(f *testing.F) {
	f.Add(checkpoint("ckpt_1", true).bytes())
	f.Add(torchFile("x", []pair{{"a", floats("0", 2)}}, map[string]int64{"0": 8, "7": 3}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		size := int64(len(b))
		list, err := Checksums(&bounded{t: t, b: b}, size)
		must.NoError(t, err)
		for _, c := range list {
			must.True(t, c.Off >= 0 && c.Len >= 0 && c.Len <= size-c.Off)
			for _, off := range c.Fields {
				must.True(t, off >= 0 && off <= size-4)
			}
		}
	})
}
