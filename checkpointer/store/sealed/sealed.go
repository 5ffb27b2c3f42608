// Package sealed encrypts a store: it is a store.Store on top of another, and neither that one nor the repository above
// knows of it.
//
// # What is protected
//
// The content of every object is encrypted and authenticated (AES-256-GCM in segments of 64 KiB), with a key of its own
// that is derived from the repository's key, a random salt and the object's name. An object that was changed, cut at any
// place, extended, or moved to another name is refused with ErrDamaged; a range is decrypted without the rest of its
// object.
//
// # What is not
//
// Names, sizes (the stored size tells the plain one exactly) and times of objects are visible, so are lineages, steps and
// epochs in names, hashes of content in names, which objects a restore reads, and the kinds and comments of key slots.
// Whoever can write to the store can delete objects, bring back an older state of one or of all, or put another repository
// in place that the same user key opens; none of that is noticed here. Content that is stored twice under two names
// cannot be told from other content of the same length. A removed key slot does not take the repository's key from those
// who had it: to lock them out, copy the snapshots into a new repository. Memory is not cleared of keys.
//
// # Keys
//
// The repository's key, 32 random bytes, is never stored but wrapped for a user's key in a key slot, keys/SLOT. A user's
// key is a passphrase or something that nobody can guess (see ParseKey); it wraps symmetrically in both cases, as an age
// file with a passphrase: with an age identity's public half, anyone could make a slot that holds a repository key of his
// own choice, and read what is sealed with it from then on. In an emergency
//
//	jq -r .wrapped keys/SLOT | base64 -d | age -d
//
// prints the 32 bytes; the passphrase is the text, the AGE-SECRET-KEY- line, or the hexadecimal digits of a key of 32
// bytes.
//
// # Objects of its own
//
//	spotter-encryption.json   {"encryption":1,"repository":ID}   decides which key is the repository's; ID is derived from it
//	keys/SLOT                 the key, wrapped for a user's key; ignored unless it names the same ID
//	keys/removed/NUMBER       which slot was removed, in order
//
// A slot is durable before spotter-encryption.json, and that is created only if it is absent: of several creators one
// decides, and one that dies leaves at most a slot that nobody reads. The store above cannot see or touch these objects.
//
// # Why this construction
//
// The format is that of Tink's AES256-GCM-HKDF streaming AEAD, an instance of STREAM (Hoang, Reyhanitabar, Rogaway, Vizár:
// Online Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance, 2015, https://eprint.iacr.org/2015/189). Tink
// frames and numbers the segments that are sealed. Its Go library cannot open a range, so opening is done here, segment by
// segment, with the standard library's GCM and HKDF; tests hold both directions against Tink's own implementation. An own
// reader also tells an error of the store from damage, which Tink's takes for a cut object when the error is
// io.ErrUnexpectedEOF. age (filippo.io/age), which wraps the keys here, does open ranges, but decrypts at a third of the
// speed (ChaCha20-Poly1305), and reads header and last chunk for each.
package sealed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// Version is the version of the encryption that this package writes and reads.
const Version = 1

const (
	headKey           = "spotter-encryption.json"
	plainKey          = "spotter-repository.json" // the first object that a repository writes
	repositoryKeySize = 32                        // bytes
	maxHead           = 4 << 10                   // bytes
)

// Errors that callers branch on.
var (
	ErrKeyNeeded    = errors.New("this repository is encrypted: give --key-file or " + KeyVariable)
	ErrWrongKey     = errors.New("no key slot opens with this key")
	ErrNotEncrypted = errors.New("this repository is not encrypted: give no key, or copy its snapshots into a new one that is")
)

// head is the content of headKey.
type head struct {
	Encryption int    `json:"encryption"` // Version
	Repository string `json:"repository"` // ID of the repository's key
}

// derive makes a key for one purpose of the repository's key.
func derive(repository []byte, purpose string, size int) ([]byte, error) {
	b, err := hkdf.Key(sha256.New, repository, nil, "nomad-spotter sealed 1 "+purpose, size)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", purpose, err)
	}
	return b, nil
}

// idOf is the public name of a repository's key.
func idOf(repository []byte) (string, error) {
	b, err := derive(repository, "id", 16)
	return hex.EncodeToString(b), err
}

// readHead returns store.ErrNotFound if the store is not encrypted.
func readHead(ctx context.Context, s store.Store) (head, error) {
	b, err := readUpTo(ctx, s, headKey, maxHead)
	if err != nil {
		return head{}, err
	}
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return head{}, fmt.Errorf("decode %s in %s: %w: %w", headKey, s.URL(), store.ErrDamaged, err)
	}
	if h.Encryption <= 0 {
		return head{}, fmt.Errorf("decode %s in %s: %w: it has no version", headKey, s.URL(), store.ErrDamaged)
	}
	if h.Encryption != Version {
		return head{}, fmt.Errorf("repository in %s has encryption %d, this program knows %d: use a newer one", s.URL(), h.Encryption, Version)
	}
	return h, nil
}

// Open returns the store to use for the objects in s: s itself if it is not encrypted and key is nil, a store that
// encrypts if key opens it. It fails with ErrKeyNeeded, ErrWrongKey or ErrNotEncrypted where the two do not fit, and
// changes nothing. With a key, a store is never used without encryption.
func Open(ctx context.Context, s store.Store, key *Key) (store.Store, error) {
	h, err := readHead(ctx, s)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if _, err := plain(ctx, s); err != nil {
			return nil, err
		}
		if key == nil {
			return s, nil
		}
		return nil, fmt.Errorf("open %s: %w", s.URL(), ErrNotEncrypted)
	case err != nil:
		return nil, fmt.Errorf("open repository: %w", err) // it may be a plain one
	case key == nil:
		return nil, fmt.Errorf("open %s: %w", s.URL(), ErrKeyNeeded)
	}
	return open(ctx, s, h, *key)
}

// plain tells whether a store without headKey holds a plain repository. Where the first object that a repository writes is
// there and is an encrypted one, headKey was lost: that is an error.
func plain(ctx context.Context, s store.Store) (bool, error) {
	b, err := readUpTo(ctx, s, plainKey, maxHead)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil || len(b) == 0 || b[0] != headerSize {
		return err == nil, err
	}
	if _, err := s.Stat(ctx, headKey); !errors.Is(err, store.ErrNotFound) {
		return false, err // the repository is just being made
	}
	ids, err := slotRepositories(ctx, s)
	if err != nil {
		return false, err
	}
	next := "no key slot tells of it either: restore from a replica"
	if len(ids) > 0 {
		next = fmt.Sprintf("make it {\"encryption\":%d,\"repository\":\"ID\"} with the ID of a key slot, one of %s", Version, strings.Join(ids, ", "))
	}
	return false, fmt.Errorf("open %s: %w: %s is missing, though the objects are encrypted; %s", s.URL(), store.ErrDamaged, headKey, next)
}

func open(ctx context.Context, s store.Store, h head, key Key) (*sealedStore, error) {
	repository, _, err := unlock(ctx, s, h, key)
	if err != nil {
		return nil, fmt.Errorf("open encrypted repository in %s: %w", s.URL(), err)
	}
	objects, err := derive(repository, "objects", 32)
	if err != nil {
		return nil, err
	}
	return &sealedStore{inner: s, key: objects}, nil
}

// Create makes an encrypted repository of a store that holds none, with one slot for key, and opens it. If the store is
// encrypted already, Create opens it as Open does; if it holds a plain repository, it fails with ErrNotEncrypted. Several
// creators agree on one repository key; where their own keys differ, all but one fail with ErrWrongKey. A creation that
// was interrupted may be repeated. The bytes that it stored are reported by the first Put.
func Create(ctx context.Context, s store.Store, key Key) (store.Store, error) {
	h, err := readHead(ctx, s)
	var stored int64
	if errors.Is(err, store.ErrNotFound) {
		if stored, err = begin(ctx, s, key); err != nil {
			return nil, fmt.Errorf("create encrypted repository in %s: %w", s.URL(), err)
		}
		h, err = readHead(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("create encrypted repository: %w", err)
	}
	opened, err := open(ctx, s, h, key)
	if err != nil {
		return nil, err
	}
	opened.unreported.Store(stored)
	return opened, nil
}

// begin makes a key and a slot, and proposes them as the repository's. It returns by how many bytes the store grew.
func begin(ctx context.Context, s store.Store, key Key) (int64, error) {
	if is, err := plain(ctx, s); err != nil || is {
		return 0, cmp.Or(err, ErrNotEncrypted)
	}
	if list, err := s.List(ctx, "lineages/"); err != nil || len(list) > 0 {
		if err == nil {
			err = fmt.Errorf("%w: %s and %s are missing, though %s is there: bring them back from a backup or restore from a replica", store.ErrDamaged, headKey, plainKey, list[0].Key)
		}
		return 0, err
	}
	repository := make([]byte, repositoryKeySize)
	if _, err := rand.Read(repository); err != nil {
		return 0, err
	}
	id, err := idOf(repository)
	if err != nil {
		return 0, err
	}
	slot, slotBytes, err := putSlot(ctx, s, id, repository, key, "")
	if err != nil {
		return 0, err
	}
	b, err := json.Marshal(head{Encryption: Version, Repository: id})
	if err != nil {
		return 0, err
	}
	headBytes, err := s.Put(ctx, headKey, bytes.NewReader(b))
	if errors.Is(err, store.ErrExists) {
		// Somebody else was first, or an earlier try of this Put that seemed to fail.
		switch h, err := readHead(ctx, s); {
		case err != nil:
			return 0, err
		case h.Repository != id:
			return 0, s.Delete(ctx, slotPrefix+slot.ID)
		}
		return slotBytes + int64(len(b)), nil
	}
	return slotBytes + headBytes, err
}
