package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
)

// probeDir holds the objects of Probe; each is deleted before Probe returns.
const probeDir = "probe"

// Probe writes a small object, reads it back whole and in part, finds it in a listing, tries to create it again, and
// deletes it. ErrNotConditional is returned only by a store on which all the rest works.
func Probe(ctx context.Context, s Store) (err error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	key := probeDir + "/" + hex.EncodeToString(id[:])
	defer func() {
		if err != nil {
			err = fmt.Errorf("probe %s: %w", s.URL(), err)
		}
	}()
	first, second := []byte("first "+key), []byte("second "+key)
	if _, err := s.Put(ctx, key, bytes.NewReader(first)); err != nil {
		return err
	}
	err = probe(ctx, s, key, first, second)
	if derr := s.Delete(ctx, key); derr != nil {
		return errors.Join(err, derr)
	}
	if _, serr := s.Stat(ctx, key); !errors.Is(serr, ErrNotFound) {
		return errors.Join(fmt.Errorf("%s is still there after its deletion", key), err, serr)
	}
	return err
}

func probe(ctx context.Context, s Store, key string, first, second []byte) error {
	if err := same(first)(s.Get(ctx, key)); err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	if err := same(first[3:9])(s.GetRange(ctx, key, 3, 6)); err != nil {
		return fmt.Errorf("read back a range of %s: %w", key, err)
	}
	list, err := s.List(ctx, probeDir+"/")
	if err != nil {
		return err
	}
	if !slices.Contains(list, Entry{Key: key, Size: int64(len(first))}) {
		return fmt.Errorf("%s is missing from the listing of %s/", key, probeDir)
	}
	switch _, err := s.Put(ctx, key, bytes.NewReader(second)); {
	case err == nil:
		return ErrNotConditional
	case !errors.Is(err, ErrExists):
		return err
	}
	if err := same(first)(s.Get(ctx, key)); err != nil {
		return fmt.Errorf("read %s after a second creation: %w", key, err)
	}
	return nil
}

// same returns a check that what was opened has just the wanted content.
func same(want []byte) func(io.ReadCloser, error) error {
	return func(r io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("other content than written: got %d bytes, want %d", len(got), len(want))
		}
		return nil
	}
}
