package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	bucketName   = "bench"
	serverUser   = "bench"
	serverSecret = "bench-only-secret"
	slowLink     = 100e6 // bytes per second
)

// server is an S3 server of our own, versitygw, that keeps its objects in a folder.
type server struct {
	addr string
	stop func() error
}

// errNoServer is returned where versitygw is not installed.
var errNoServer = errors.New("versitygw is neither on PATH nor among the engines (make engines)")

func startServer(ctx context.Context, dir string) (*server, error) {
	bin, err := exec.LookPath("versitygw")
	if err != nil {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, errNoServer
		}
		bin = filepath.Join(cache, "spotter", "bin", "versitygw")
		if _, err := os.Stat(bin); err != nil {
			return nil, errNoServer
		}
	}
	root := filepath.Join(dir, "server")
	if err := os.MkdirAll(filepath.Join(root, bucketName), 0o700); err != nil {
		return nil, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "--port", addr, "--access", serverUser, "--secret", serverSecret, "--quiet", "--keep-alive", "posix", root)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start versitygw: %w", err)
	}
	stop := func() error {
		if err := cmd.Process.Kill(); err != nil {
			return fmt.Errorf("stop versitygw: %w", err)
		}
		_ = cmd.Wait() // it was killed
		return nil
	}
	if err := waitForPort(ctx, addr); err != nil {
		return nil, errors.Join(err, stop(), errors.New(lastLines(said.String(), 5)))
	}
	return &server{addr, stop}, nil
}

// remote is how the two tools reach the server over a link.
type remote struct{ addr string }

// ours is our command on the lineage of an effort.
func (r remote) ours(binary, effort string, args ...string) Command {
	url := fmt.Sprintf("s3://%s/repo?endpoint=http://%s&path_style=true&region=us-east-1", bucketName, r.addr)
	return Command{
		Args: append([]string{binary, args[0], "--store", url, "--lineage", effort, "--json"}, args[1:]...),
		Env:  []string{"AWS_ACCESS_KEY_ID=" + serverUser, "AWS_SECRET_ACCESS_KEY=" + serverSecret},
	}
}

func (r remote) rclone(args ...string) Command {
	return Command{
		Args: append([]string{"rclone", "--config", "/dev/null"}, args...),
		Env: []string{
			"RCLONE_CONFIG_B_TYPE=s3", "RCLONE_CONFIG_B_PROVIDER=Other", "RCLONE_CONFIG_B_ACCESS_KEY_ID=" + serverUser,
			"RCLONE_CONFIG_B_SECRET_ACCESS_KEY=" + serverSecret, "RCLONE_CONFIG_B_ENDPOINT=http://" + r.addr,
			"RCLONE_CONFIG_B_REGION=us-east-1", "RCLONE_CONFIG_B_NO_CHECK_BUCKET=true",
		},
	}
}

// restored is one checkpoint brought back by rclone and from what each of our efforts made.
type restored struct {
	step   int64
	rclone float64            // wall seconds, median
	ours   map[string]float64 // the same, by effort
}

// remoteGoals compares restoring from an S3 server with rclone copying the raw files from it, over the loopback
// interface itself and over a link of 100 MB/s.
func remoteGoals(ctx context.Context, binary, work string, series []Series, reps int, log io.Writer) (goals []Goal, tables []Table, err error) {
	fast := Goal{Name: "restore from S3, loopback, fp32: wall over rclone copying the raw file, median of all checkpoints", Limit: 1.1, Unit: "times"}
	slow := Goal{Name: "restore from S3, 100 MB/s, fp32: wall over rclone copying the raw file, median of all checkpoints", Limit: .85, Unit: "times"}
	missing := func(why string) ([]Goal, []Table, error) {
		fast.Missing, slow.Missing = why, why
		return []Goal{fast.judged(), slow.judged()}, nil, nil
	}
	var s Series
	for _, x := range series {
		if x.Name == "fp32" {
			s = x
		}
	}
	if len(s.Files) == 0 {
		return missing("the series fp32 was not run")
	}
	if _, err := exec.LookPath("rclone"); err != nil {
		return missing("rclone is not installed")
	}
	dir, err := os.MkdirTemp(work, "bench-s3-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srv, err := startServer(ctx, dir)
	if errors.Is(err, errNoServer) {
		return missing(err.Error())
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	at := remote{srv.addr}
	for _, f := range s.Files {
		fmt.Fprintf(log, "fp32 into the S3 server: step %d\n", f.Step)
		if _, _, err := measure(ctx, at.rclone("copyto", f.Path, "b:"+bucketName+"/raw/"+step(f))); err != nil {
			return nil, nil, err
		}
		for _, effort := range efforts {
			c := at.ours(binary, effort, "save", "--effort", effort, "--step", step(f), f.Path)
			c.Env = append(c.Env, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
			if _, _, err := measure(ctx, c); err != nil {
				return nil, nil, err
			}
		}
	}
	link, err := newLink(ctx, srv.addr, slowLink)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, link.Close()) }()
	for _, over := range []struct {
		goal *Goal
		name string
		at   remote
	}{{&fast, "loopback", at}, {&slow, "100 MB/s", remote{link.Addr()}}} {
		results, err := restoreAll(ctx, over.at, binary, dir, s, reps, log)
		if err != nil {
			return nil, nil, err
		}
		t := Table{
			Title:  "Restoring from an S3 server, fp32, " + over.name,
			Note:   "wall s, medians, and ours : rclone, which copies the raw file from the same server",
			Header: []string{"step", "rclone"},
		}
		for _, effort := range efforts {
			t.Header = append(t.Header, effort, effort+" : rclone")
			over.goal.Measured = append(over.goal.Measured, Setting{effort, medianRatio(results, effort)})
		}
		for _, r := range results {
			row := []string{fmt.Sprint(r.step), number(r.rclone)}
			for _, effort := range efforts {
				row = append(row, number(r.ours[effort]), number(r.ours[effort]/r.rclone))
			}
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
	}
	return []Goal{fast.judged(), slow.judged()}, tables, nil
}

func medianRatio(rs []restored, effort string) float64 {
	var vs []float64
	for _, r := range rs {
		vs = append(vs, r.ours[effort]/r.rclone)
	}
	return median(vs)
}

// restoreAll brings back every checkpoint with both tools, alternating.
func restoreAll(ctx context.Context, r remote, binary, dir string, s Series, reps int, log io.Writer) ([]restored, error) {
	const peer = "rclone"
	var out []restored
	for _, f := range s.Files {
		fmt.Fprintf(log, "fp32 from the S3 server at %s: step %d\n", r.addr, f.Step)
		times := map[string][]float64{}
		for range reps {
			for _, by := range append([]string{peer}, efforts...) {
				c, name := r.ours(binary, by, "restore", "--step", step(f), "--to", filepath.Join(dir, "to")), filepath.Base(f.Path)
				if by == peer {
					name = constantName
					c = r.rclone("copyto", "b:"+bucketName+"/raw/"+step(f), filepath.Join(dir, "to", name))
				}
				u, err := bringBack(ctx, c, dir, name, f)
				if err != nil {
					return nil, err
				}
				times[by] = append(times[by], u.WallS)
			}
		}
		one := restored{f.Step, median(times[peer]), map[string]float64{}}
		for _, effort := range efforts {
			one.ours[effort] = median(times[effort])
		}
		out = append(out, one)
	}
	return out, nil
}

// bringBack runs c, which restores f as name in dir/to, compares it and removes it.
func bringBack(ctx context.Context, c Command, dir, name string, f File) (Usage, error) {
	to := filepath.Join(dir, "to")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return Usage{}, err
	}
	if err := settle(ctx); err != nil {
		return Usage{}, err
	}
	_, u, err := measure(ctx, c)
	if err != nil {
		return u, err
	}
	return u, errors.Join(compareFiles(f.Path, filepath.Join(to, name)), os.RemoveAll(to))
}
