//go:build !amd64

package delta

// Without vector kernels every kernel does everything in Go.

func rotateWide(_, _ []byte, _ int) int                 { return 0 }
func unrotateWide(_ []byte, _ int) int                  { return 0 }
func subtractWide(_, _, _ []byte, _ int) int            { return 0 }
func addWide(_, _ []byte, _ int) int                    { return 0 }
func splitWide(_ *planeSet, _ int, _ []byte, _ int) int { return 0 }
func mergeWide(_ []byte, _ *planeSet, _, _ int) int     { return 0 }
func exponentsWide(_, _ []byte, _, _ int) int           { return 0 }

func contextsWide(_, _, _ []byte, _ *[classes * 256]uint8) int { return 0 }
func classifyWide(_, _ []byte) int                             { return 0 }

func (r *rans) putRows(_ []byte, end int, _, _ []byte) (done, newEnd int) { return 0, end }

func (r *rans) getRows(_, _, in []byte) (done int, rest []byte) { return 0, in }
