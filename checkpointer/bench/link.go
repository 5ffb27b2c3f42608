package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Link is a TCP proxy on the loopback interface that lets through so many bytes per second, each way, over all
// connections together.
type Link struct {
	listener net.Listener
	target   string
	up, down *bucket
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// linkPiece is how much is sent at once: 64 KiB are .7 ms at 100 MB/s.
const linkPiece = 64 << 10

// newLink starts a proxy in front of target that carries bytesPerS bytes a second.
func newLink(ctx context.Context, target string, bytesPerS float64) (*Link, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start link: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &Link{listener: l, target: target, up: newBucket(bytesPerS), down: newBucket(bytesPerS), cancel: cancel}
	k.done.Go(func() { k.accept(ctx) })
	return k, nil
}

// Addr is where the proxy listens.
func (k *Link) Addr() string { return k.listener.Addr().String() }

// Close ends the proxy and its connections.
func (k *Link) Close() error {
	k.cancel()
	err := k.listener.Close()
	k.done.Wait()
	return err
}

func (k *Link) accept(ctx context.Context) {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.done.Go(func() { k.carry(ctx, c) })
	}
}

// carry serves one connection until either side has ended it.
func (k *Link) carry(ctx context.Context, c net.Conn) {
	var dialer net.Dialer
	t, err := dialer.DialContext(ctx, "tcp", k.target)
	if err != nil {
		_ = c.Close() // the client sees that
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(c.Close(), t.Close()) })
	var both sync.WaitGroup
	both.Go(func() { pump(ctx, t, c, k.up) })
	both.Go(func() { pump(ctx, c, t, k.down) })
	both.Wait()
	stop()
	_ = errors.Join(c.Close(), t.Close()) // both directions have ended
}

// pump copies from src to dst at the bucket's rate, then closes that direction.
func pump(ctx context.Context, dst, src net.Conn, b *bucket) {
	buf := make([]byte, linkPiece)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if b.take(ctx, n) != nil {
				break
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	if h, ok := dst.(*net.TCPConn); ok {
		_ = h.CloseWrite() // the other side may have closed it
	}
}

// bucket hands out the right to send bytes, in the order in which it is asked.
type bucket struct {
	mu   sync.Mutex
	rate float64   // bytes per second
	free time.Time // when all that was handed out is sent
}

func newBucket(rate float64) *bucket { return &bucket{rate: rate} }

// due returns how long to wait before n more bytes may go, and when they will have gone. A bucket that was idle saves
// nothing up but burst.
func due(now, free time.Time, n int, rate float64) (wait time.Duration, next time.Time) {
	const burst = 2 * time.Millisecond // a timer's slack
	if free.Before(now.Add(-burst)) {
		free = now.Add(-burst)
	}
	return max(free.Sub(now), 0), free.Add(time.Duration(float64(n) / rate * float64(time.Second)))
}

func (b *bucket) take(ctx context.Context, n int) error {
	b.mu.Lock()
	var wait time.Duration
	wait, b.free = due(time.Now(), b.free, n, b.rate)
	b.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitForPort returns once something listens at addr.
func waitForPort(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		t := time.NewTimer(50 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("nothing listens at %s: %w", addr, errors.Join(err, ctx.Err()))
		}
	}
}

// freeAddr is an address on the loopback interface where nothing listens.
func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

var _ io.Closer = (*Link)(nil)
