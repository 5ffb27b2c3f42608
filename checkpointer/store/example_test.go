package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// Create an object once, and read a part of it. Buckets are opened in the same way, as by s3://bucket/prefix, in a program
// that imports their package.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	s, err := store.Open("file://"+dir, false)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Probe(ctx, s); err != nil { // that it does all that is expected of it
		log.Fatal(err)
	}
	n, err := s.Put(ctx, "names/first", strings.NewReader("hello, world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "bytes")
	_, err = s.Put(ctx, "names/first", strings.NewReader("another"))
	fmt.Println("there already:", errors.Is(err, store.ErrExists))
	r, err := s.GetRange(ctx, "names/first", 7, 5)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", b)
	// Output:
	// 12 bytes
	// there already: true
	// world
}
