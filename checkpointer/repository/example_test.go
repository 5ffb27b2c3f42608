package repository_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
	"nomad-spotter/checkpointer/store"
)

// Save a checkpoint and restore it elsewhere.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "ckpt_100.pt"), []byte("weights"), 0o600); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	s, err := store.Open("file://"+dir+"/store", true)
	if err != nil {
		log.Fatal(err)
	}
	repo, err := repository.Open(ctx, s, true)
	if err != nil {
		log.Fatal(err)
	}
	// Whoever claims the next epoch is the only writer of the lineage.
	w, err := repo.Claim(ctx, "default/train", "example", time.Now())
	if err != nil {
		log.Fatal(err)
	}
	tree, err := stage.Scan(dir, "ckpt_100.pt")
	if err != nil {
		log.Fatal(err)
	}
	p, err := w.Publish(ctx, 100, tree, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d bytes\n", p.ID, p.RawBytes)

	to := filepath.Join(dir, "restored")
	if err := os.Mkdir(to, 0o700); err != nil {
		log.Fatal(err)
	}
	m, damaged, err := repo.Newest(ctx, "default/train", repository.Target{Dir: to, UID: -1, GID: -1})
	if err != nil {
		log.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(to, m.Name))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step %d: %s, %d damaged\n", m.Step, b, len(damaged))
	// Output:
	// 00000001-000000000100: 7 bytes
	// step 100: weights, 0 damaged
}

// Keep a replica in another store, and only the newest snapshot in the first.
func ExampleCopy() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	open := func(name string) *repository.Repository {
		s, err := store.Open("file://"+filepath.Join(dir, name), true)
		if err != nil {
			log.Fatal(err)
		}
		r, err := repository.Open(ctx, s, true)
		if err != nil {
			log.Fatal(err)
		}
		return r
	}
	here, there := open("here"), open("there")
	w, err := here.Claim(ctx, "default/train", "example", time.Now())
	if err != nil {
		log.Fatal(err)
	}
	for step := range int64(3) {
		if _, err := w.Publish(ctx, step, memory{"ckpt", map[string]string{"model.bin": fmt.Sprint("weights ", step)}}, time.Now()); err != nil {
			log.Fatal(err)
		}
	}
	list, err := here.Snapshots(ctx, "default/train")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		c, err := repository.Copy(ctx, here, there, s, repository.CopyOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("copied", c.ID, "with packs:", c.Count)
	}
	g, err := here.Collect(ctx, "default/train", repository.Retention{Last: 1}, repository.CollectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("removed", len(g.Snapshots))
	// Output:
	// copied 00000001-000000000002 with packs: 2
	// copied 00000001-000000000001 with packs: 1
	// copied 00000001-000000000000 with packs: 0
	// removed 2
}
