package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"filippo.io/age"
)

// KeyVariable is the environment variable that holds a user's key as text.
const KeyVariable = "SPOTTER_KEY"

const (
	rawKeySize  = 32       // bytes of a key file that is not text
	maxKeyFile  = 64 << 10 // bytes
	agePrefix   = "AGE-SECRET-KEY-"
	workOfWords = 17 // log2 of scrypt's N for passphrases: 128 MiB, some 0.5 s; the least that OWASP advises
	workOfKeys  = 10 // the same for keys that nobody can guess: 1 MiB, 2 ms
	maxWork     = 18 // what a slot may ask for: 256 MiB
)

// Kind tells what a user's key is.
type Kind string

// Kinds of user keys.
const (
	Passphrase Kind = "passphrase" // chosen by a person: trying one is made slow
	Random     Kind = "random"     // 32 random bytes, or an age identity
)

// Key is a user's key, which opens key slots. It prints as its kind only.
type Key struct {
	secret string
	kind   Kind
	work   int // log2 of scrypt's N when a slot is made
}

// String implements fmt.Stringer.
func (k Key) String() string { return "(a key: " + string(k.kind) + ")" }

// GoString implements fmt.GoStringer.
func (k Key) GoString() string { return k.String() }

// ParseKey reads a user's key, in this order: an age identity (the output of age-keygen, one AGE-SECRET-KEY- line among
// comments); exactly 32 bytes that are not text; one line of text, which is a passphrase. The end of the line is not part
// of it.
func ParseKey(b []byte) (Key, error) {
	if len(b) > maxKeyFile {
		return Key{}, fmt.Errorf("key has more than %d bytes", maxKeyFile)
	}
	text := strings.TrimRight(string(b), "\r\n")
	switch {
	case hasIdentity(b):
		ids, err := age.ParseIdentities(bytes.NewReader(b))
		if err != nil {
			return Key{}, errors.New("key is not a list of age identities") // err may quote the secret
		}
		if len(ids) != 1 {
			return Key{}, fmt.Errorf("key holds %d age identities: keep one", len(ids))
		}
		id, ok := ids[0].(fmt.Stringer)
		if !ok {
			return Key{}, errors.New("key is an age identity of an unknown kind")
		}
		return Key{secret: id.String(), kind: Random, work: workOfKeys}, nil
	case len(b) == rawKeySize && !isLine(text):
		return Key{secret: hex.EncodeToString(b), kind: Random, work: workOfKeys}, nil
	case text == "":
		return Key{}, errors.New("key is empty")
	case !isLine(text):
		return Key{}, fmt.Errorf("key is neither an age identity, nor %d bytes, nor one line of text", rawKeySize)
	}
	return Key{secret: text, kind: Passphrase, work: workOfWords}, nil
}

// hasIdentity tells whether a line begins as an age identity does.
func hasIdentity(b []byte) bool {
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte(agePrefix)) {
			return true
		}
	}
	return false
}

// isLine tells whether s is printable text without a line's end.
func isLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// LoadKey reads the user's key from a file, or, when file is "", from the variable KeyVariable of the environment env. It
// returns nil when neither is given.
func LoadKey(file string, env func(string) string) (*Key, error) {
	if file == "" {
		text := env(KeyVariable)
		if text == "" {
			return nil, nil //nolint:nilnil // documented: there is no key
		}
		k, err := ParseKey([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", KeyVariable, err)
		}
		return &k, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	k, err := ParseKey(b)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	return &k, nil
}

// wrap encrypts the repository's key for k, as an age file (https://age-encryption.org/v1) with a passphrase.
func (k Key) wrap(repository []byte) ([]byte, error) {
	if k.secret == "" {
		return nil, errors.New("wrap key: no user key")
	}
	to, err := age.NewScryptRecipient(k.secret)
	if err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	to.SetWorkFactor(k.work)
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	if _, err := w.Write(repository); err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("wrap key: %w", err)
	}
	return out.Bytes(), nil
}

// unwrap reverses wrap; ok is false when the slot does not open with k, be it another's or damaged.
func (k Key) unwrap(wrapped []byte) (repository []byte, ok bool) {
	id, err := age.NewScryptIdentity(k.secret)
	if err != nil {
		return nil, false
	}
	id.SetMaxWorkFactor(maxWork)
	r, err := age.Decrypt(bytes.NewReader(wrapped), id)
	if err != nil {
		return nil, false
	}
	repository, err = io.ReadAll(io.LimitReader(r, repositoryKeySize+1))
	return repository, err == nil && len(repository) == repositoryKeySize
}
