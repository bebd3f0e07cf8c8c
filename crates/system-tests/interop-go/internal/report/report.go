// Package report prints what a program saw, one JSON object per line; the last line names everything that was wrong.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Report collects counts and failures; safe for use by several goroutines.
type Report struct {
	mutex  sync.Mutex
	counts map[string]int
	failed []string
}

// New gives an empty report.
func New() *Report {
	return &Report{counts: map[string]int{}, failed: []string{}}
}

// Count adds one to what happened.
func (r *Report) Count(what string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.counts[what]++
}

// Fail notes that something was wrong.
func (r *Report) Fail(format string, arguments ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.failed = append(r.failed, fmt.Sprintf(format, arguments...))
}

// Expect notes a failure unless both print alike.
func (r *Report) Expect(what string, actual, wanted any) {
	if a, w := fmt.Sprintf("%v", actual), fmt.Sprintf("%v", wanted); a != w {
		r.Fail("%s: %s, and not %s", what, a, w)
	}
}

// End prints the result and leaves the program.
func (r *Report) End() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	Print(map[string]any{"counts": r.counts, "failed": r.failed})
	if len(r.failed) > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// Print writes one line.
func Print(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}
