package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Measurements that need the packages themselves run in a process of their own: what this one holds in memory would count
// for every program that it starts.

// childWord starts such a process, as the first argument.
const childWord = "child"

// children are the measurements by name. Each takes the JSON of its request and returns something that becomes JSON.
var children = map[string]func(ctx context.Context, request []byte) (any, error){
	"codec": func(ctx context.Context, b []byte) (any, error) { return request(ctx, b, codec) },
	"many":  func(ctx context.Context, b []byte) (any, error) { return request(ctx, b, fillMany) },
	"touch": func(ctx context.Context, b []byte) (any, error) { return request(ctx, b, touch) },
	"stall": func(ctx context.Context, b []byte) (any, error) { return request(ctx, b, stall) },
}

func request[Q, A any](ctx context.Context, b []byte, f func(context.Context, Q) (A, error)) (A, error) {
	var q Q
	if err := json.Unmarshal(b, &q); err != nil {
		var none A
		return none, fmt.Errorf("read the request: %w", err)
	}
	return f(ctx, q)
}

// asChild serves one request: args are a name and its JSON.
func asChild(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 2 || children[args[0]] == nil {
		return errors.New("child: want the name of a measurement and its request")
	}
	answer, err := children[args[0]](ctx, []byte(args[1]))
	if err != nil {
		return fmt.Errorf("measure %s: %w", args[0], err)
	}
	return json.NewEncoder(stdout).Encode(answer)
}

// ask has a child measure, with so many processors (0: all), and fills in answer.
func ask(ctx context.Context, name string, processors int, request, answer any) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	c := Command{Args: []string{self, childWord, name, string(b)}}
	if processors > 0 {
		c.Env = []string{fmt.Sprintf("GOMAXPROCS=%d", processors)}
	}
	out, _, err := measure(ctx, c)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), answer)
}

// settle takes what others left behind out of the next measurement: what they wrote is on the disk, and free memory was
// touched. A virtual machine may have given free memory back to its host, and then pays for each page that it touches
// again, whoever asks for it.
func settle(ctx context.Context) error {
	unix.Sync()
	var touched int
	return ask(ctx, "touch", 1, touchBytes, &touched)
}

// touchBytes is more than any program here has at once.
const touchBytes = 1 << 30

func touch(_ context.Context, n int) (int, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return 0, fmt.Errorf("touch %d bytes: %w", n, err)
	}
	return len(b), unix.Munmap(b)
}
