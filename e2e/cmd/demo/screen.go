package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// How often the progress line is written: over itself on a terminal, as a line of its own elsewhere.
const (
	progressTerminal = 500 * time.Millisecond
	progressLog      = 5 * time.Second
)

// screen is what the demo shows.
type screen struct {
	w        io.Writer
	terminal bool
	section  int
	dirty    bool // a progress line stands without an end
	last     time.Time
	lastText string
}

// head begins a section.
func (s *screen) head(title string) {
	s.clear()
	s.section++
	fmt.Fprintf(s.w, "\n%d. %s\n", s.section, title)
}

// text explains; it is wrapped at 100 columns.
func (s *screen) text(format string, args ...any) {
	s.clear()
	line := "  "
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		if len(line)+1+len(word) > 100 {
			fmt.Fprintln(s.w, line)
			line = "  "
		}
		line += " " + word
	}
	fmt.Fprintln(s.w, line)
}

// event is something that happened, with the time of day or a delay before it.
func (s *screen) event(at, format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.w, "   %12s  %s\n", at, fmt.Sprintf(format, args...))
}

// progress shows where things are, when it was not shown just now.
func (s *screen) progress(text string) {
	every := progressLog
	if s.terminal {
		every = progressTerminal
	}
	if time.Since(s.last) < every {
		return
	}
	s.last = time.Now()
	if !s.terminal {
		fmt.Fprintf(s.w, "   ... %s\n", text)
		return
	}
	fmt.Fprintf(s.w, "\r\x1b[K   ... %s", text)
	s.dirty = true
}

// step is progress that is always shown, unless it repeats itself.
func (s *screen) step(text string) {
	if text == s.lastText {
		return
	}
	s.last, s.lastText = time.Time{}, text
	s.progress(text)
}

// clear removes a progress line.
func (s *screen) clear() {
	if s.dirty {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.dirty = false
	}
}
