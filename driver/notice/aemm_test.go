package notice

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"
)

// TestEC2_AgainstTheMockOfAmazon watches amazon-ec2-metadata-mock, which wants tokens, gives a recommendation, and moves
// the time of its notice at each request.
func TestEC2_AgainstTheMockOfAmazon(t *testing.T) {
	bin, err := exec.LookPath("ec2-metadata-mock")
	if err != nil {
		home, herr := os.UserHomeDir()
		must.NoError(t, herr)
		bin = filepath.Join(home, ".cache", "spotter", "bin", "ec2-metadata-mock")
		if _, err := os.Stat(bin); err != nil {
			t.Skipf("no ec2-metadata-mock on PATH and none at %s; go install github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock@v1.13.0", bin)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	addr := l.Addr().(*net.TCPAddr)
	must.NoError(t, l.Close())
	port := fmt.Sprint(addr.Port)
	cmd := exec.Command(bin, "spot", "-n", "127.0.0.1", "-p", port, "-I", "-d", "4", "--rebalance-delay-sec", "1")
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	w := &watched{}
	s := NewEC2("http://127.0.0.1:"+port, 100*time.Millisecond, hclog.NewNullLogger())
	run(t, s, w)
	// The mock may take longer to start than the source takes to say that it is lost.
	eventually(t, func() bool {
		k := w.kinds()
		return k == "ok rebalance interruption" || k == "lost ok rebalance interruption"
	}, w.kinds)
	e := w.last()
	must.Eq(t, ActionTerminate, e.Action)
	must.Between(t, 115*time.Second, e.Deadline.Sub(e.Seen), 122*time.Second)
	before := w.kinds()
	time.Sleep(1500 * time.Millisecond) // further polls see later times: none of them is news
	must.Eq(t, before, w.kinds())
}
