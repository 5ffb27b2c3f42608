package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// ports hands out free loopback ports, none twice. Each is free when it is handed out; holding it until its user starts
// is not possible, so they are taken from below the kernel's ephemeral range, where no outgoing connection lands.
type ports struct {
	mu   sync.Mutex
	next int
}

// firstPort and lastPort bound the range; the local provider has its own, above.
const (
	firstPort = 20100
	lastPort  = 21999
)

func (p *ports) free(ctx context.Context) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = firstPort
	}
	for ; p.next <= lastPort; p.next++ {
		if !listens(ctx, p.next) {
			continue
		}
		p.next++
		return p.next - 1, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// listens tells whether both a TCP and a UDP socket can be bound; serf takes both.
func listens(ctx context.Context, port int) bool {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := lc.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return false
	}
	return u.Close() == nil
}
