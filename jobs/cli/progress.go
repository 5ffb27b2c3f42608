package cli

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar is a progress bar on w if that is a terminal, and silent otherwise.
func bar(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.NewOptions64(total, progressbar.OptionSetVisibility(false))
	}
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100e6), progressbar.OptionSetSpinnerChangeInterval(0))
}
