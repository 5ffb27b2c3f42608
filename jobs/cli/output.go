package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// checkOutput refuses the path of a file that a flag names where no file can be: asked before long work, it spares that.
// What is there is replaced, so it must be a file: not a directory, nor a device or a pipe such as /dev/stdout.
func checkOutput(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s: %s is no file; give the path of one, which may exist or not", flag, path)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("%s: %w; give a path in a directory that can be written", flag, err)
	}
	return nil
}

// writeWhole writes the file that a flag names. It is there whole or not at all.
func writeWhole(flag, path string, write func(io.Writer) error) (err error) {
	if err := checkOutput(flag, path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("%s: %w; give a path in a directory that can be written", flag, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it may be closed
			err = errors.Join(fmt.Errorf("%s: %w", flag, err), os.Remove(f.Name()))
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
