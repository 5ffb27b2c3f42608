// Command testimage is the only program of the image that the driver's tests run.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"sleep"}
	}
	switch args[0] {
	case "exit": // exit CODE
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		code, _ := strconv.Atoi(args[1])
		os.Exit(code)
	case "sleep":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("sleeping")
		s := <-ended
		fmt.Println("got", s)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("stubborn")
		time.Sleep(time.Hour)
	case "hup": // ends with 3 on SIGHUP
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		fmt.Println("waiting")
		<-c
		os.Exit(3)
	case "tick": // a line now and then
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			time.Sleep(50 * time.Millisecond)
		}
	case "burn":
		for i := 0; ; i++ {
			_ = i * i
		}
	case "eat": // more and more memory
		var all [][]byte
		for {
			b := make([]byte, 8<<20)
			for i := range b {
				b[i] = byte(i)
			}
			all = append(all, b)
			fmt.Println(len(all)*8, "MiB")
		}
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "show": // facts about the container
		show()
	case "train": // train [STEPS]
		steps := 0
		if len(args) > 1 {
			steps, _ = strconv.Atoi(args[1])
		}
		train(steps)
	}
}

func show() {
	fmt.Println("uid", os.Getuid(), "gid", os.Getgid())
	host, _ := os.Hostname()
	fmt.Println("hostname", host)
	dir, _ := os.Getwd()
	fmt.Println("cwd", dir)
	for _, e := range os.Environ() {
		fmt.Println("env", e)
	}
	for _, f := range []string{"/etc/resolv.conf", "/etc/hosts", "/proc/self/status"} {
		b, err := os.ReadFile(f)
		fmt.Printf("file %s %v\n%s\n", f, err, b)
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		fmt.Println("interface", i.Name)
	}
	for _, d := range []string{"/alloc", "/local", "/secrets", os.Getenv("SPOTTER_CHECKPOINT_DIR")} {
		if d == "" {
			continue
		}
		err := os.WriteFile(filepath.Join(d, "probe.tmp"), []byte("x"), 0o600)
		fmt.Println("write", d, err)
	}
	if s := os.Getenv("SPOTTER_SOCKET"); s != "" {
		c, err := net.Dial("unix", s)
		fmt.Println("socket", err)
		if err == nil {
			_ = c.Close()
		}
	}
}

// train counts steps, writes one as a checkpoint whenever it is asked to, and ends after some.
func train(steps int) {
	dir := os.Getenv("SPOTTER_CHECKPOINT_DIR")
	step, _ := strconv.Atoi(os.Getenv("SPOTTER_RESUME_STEP"))
	fmt.Println("resumed from", step)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-term
		os.Exit(0)
	}()
	request := filepath.Join(dir, ".spotter-checkpoint-request")
	asked := ""
	for ; steps == 0 || step < steps; step++ {
		time.Sleep(20 * time.Millisecond)
		b, err := os.ReadFile(request)
		if err != nil || string(b) == asked {
			continue
		}
		asked = string(b)
		save(dir, step)
		for strings.Contains(asked, `"final":true`) { // no step further
			time.Sleep(20 * time.Millisecond)
			if b, err := os.ReadFile(request); err != nil || string(b) != asked {
				if !final() {
					break
				}
			}
		}
	}
	save(dir, step)
	fmt.Println("finished at", step)
}

func save(dir string, step int) {
	name := filepath.Join(dir, fmt.Sprintf("step-%d", step))
	if err := os.WriteFile(name+".tmp", []byte("weights of step "+strconv.Itoa(step)), 0o600); err != nil {
		fmt.Println(err)
		os.Exit(9)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		fmt.Println(err)
		os.Exit(9)
	}
	fmt.Println("saved", step)
}

// final asks the agent whether a final request is still open.
func final() bool {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Getenv("SPOTTER_SOCKET"))
	}}}
	resp, err := client.Get("http://agent/v1/status")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(bufio.NewReader(resp.Body))
	return strings.Contains(string(b), `"final":true`)
}
