package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// Every instance owns a block of loopback ports: the metadata endpoint's first, then Nomad's three, then those that
// Nomad hands to tasks. Whoever listens on the first port owns the block, so that two pools, or two hosts' worth of
// state directories, never share one. The range lies below Nomad's default dynamic ports (20000–32000) and below
// Linux's ephemeral ones (from 32768), so that neither a Nomad client of the host nor an outgoing connection takes a
// port of a block between its choice and its use.
const (
	firstPort   = 10240
	lastPort    = 20000 // exclusive
	blockPorts  = 128
	offHTTP     = 1
	offRPC      = 2
	offSerf     = 3
	offDynamic  = 8
	loopbackTCP = "127.0.0.1"
)

// claimPorts finds a free block and returns it with the listener that owns it.
func claimPorts() (base int, owner *net.TCPListener, err error) {
	for base := firstPort; base+blockPorts <= lastPort; base += blockPorts {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.ParseIP(loopbackTCP), Port: base})
		if err != nil {
			continue
		}
		if portsFree(base+offHTTP, base+offRPC, base+offSerf) {
			return base, l, nil
		}
		_ = l.Close()
	}
	return 0, nil, fmt.Errorf("claim ports: no free block of %d between %d and %d; end instances that are not needed", blockPorts, firstPort, lastPort)
}

// portsFree reports whether TCP and UDP (gossip) are free on every port, on all addresses: Nomad may bind 0.0.0.0.
func portsFree(ports ...int) bool {
	for _, port := range ports {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		if err != nil {
			return false
		}
		_ = l.Close()
		u, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		if err != nil {
			return false
		}
		_ = u.Close()
	}
	return true
}

// ports are an instance's loopback ports.
type ports struct {
	Metadata   int `json:"metadata"`
	HTTP       int `json:"http"`
	RPC        int `json:"rpc"`
	Serf       int `json:"serf"`
	MinDynamic int `json:"min_dynamic"`
	MaxDynamic int `json:"max_dynamic"`
}

func portsOf(base int) ports {
	return ports{
		Metadata: base, HTTP: base + offHTTP, RPC: base + offRPC, Serf: base + offSerf,
		MinDynamic: base + offDynamic, MaxDynamic: base + blockPorts - 1,
	}
}

func metadataURL(base int) string {
	return "http://" + net.JoinHostPort(loopbackTCP, strconv.Itoa(base))
}

// inheritedListener takes over the listener that a parent passed as a file descriptor.
func inheritedListener(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "metadata")
	if f == nil {
		return nil, errors.New("inherit listener: no such file descriptor")
	}
	defer func() { _ = f.Close() }() // FileListener works on a duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherit listener: %w", err)
	}
	return l, nil
}
