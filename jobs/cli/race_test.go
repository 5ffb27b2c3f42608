//go:build race

package cli

// raceDetector makes what only computes a hundred times slower.
const raceDetector = true
