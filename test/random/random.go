// Package random runs programs of random steps against a world, and shrinks those that break a promise. Environment
// variables choose the programs:
//
//	VDO_TEST_SEED=42        the program of seed 42, or with the next two those of the seeds from it on
//	VDO_TEST_PROGRAMS=9     number of programs
//	VDO_TEST_DURATION=2h    time limit, with new seeds
//	VDO_TEST_PROGRAM=FILE   a printed program, VDO_TEST_PROGRAMS times
package random

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is the time limit to shrink one program.
const patience = 2 * time.Minute

// Broken is a broken promise.
type Broken struct {
	Rule   string // a program that shrinks has to break the same rule
	Detail string
}

// Error implements error.
func (b *Broken) Error() string { return b.Rule + ": " + b.Detail }

// Program is a list of steps. Its text has the JSON of one step a line.
type Program[S any] []S

// String returns the program's text.
func (p Program[S]) String() string {
	var b strings.Builder
	for _, s := range p {
		_ = json.NewEncoder(&b).Encode(s) //nolint:errchkjson // strings and numbers
	}
	return b.String()
}

// Suite makes, reads and runs programs of steps S.
type Suite[S any] struct {
	// Draw makes a program from random numbers: the same numbers give the same program.
	Draw func(*rand.Rand) Program[S]
	// Runs run a program, each in its own world. The error is a [*Broken], or an error of the test itself.
	Runs []func(Program[S]) error
}

// Drawn returns the program of a seed.
func (s Suite[S]) Drawn(seed uint64) Program[S] {
	return s.Draw(rand.New(rand.NewPCG(seed, 7))) //nolint:gosec // not a secret, and reproducible
}

// Read reads a program's text, without empty lines and those that begin with #.
func (s Suite[S]) Read(text string) (p Program[S], _ error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		dec, step := json.NewDecoder(strings.NewReader(line)), *new(S)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&step); err != nil {
			return nil, fmt.Errorf("%q is not a step: %w", line, err)
		}
		p = append(p, step)
	}
	return p, nil
}

// CheckFile checks the program of a file.
func (s Suite[S]) CheckFile(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	p, readErr := s.Read(string(text))
	if err = errors.Join(err, readErr); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	s.check(t, s.Runs[0], name, p)
}

// Check checks the programs of the seeds from 1 to count, or those that the environment names.
func (s Suite[S]) Check(t *testing.T, count uint64) {
	t.Helper()
	if name := os.Getenv("VDO_TEST_PROGRAM"); name != "" {
		for range Number(t, "VDO_TEST_PROGRAMS", 1) {
			if s.CheckFile(t, name); t.Failed() {
				return // shrinking the failed one took minutes
			}
		}
		return
	}
	first, end := uint64(1), time.Time{}
	if text := os.Getenv("VDO_TEST_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		first, count, end = rand.Uint64(), 0, time.Now().Add(d) //nolint:gosec // printed
	} else if os.Getenv("VDO_TEST_SEED") != "" {
		count = 1
	}
	first, count = Number(t, "VDO_TEST_SEED", first), Number(t, "VDO_TEST_PROGRAMS", count)
	t.Logf("VDO_TEST_SEED=%d", first)
	seeds := make(chan uint64)
	go func() {
		defer close(seeds)
		for seed := first; seed-first < count && !t.Failed() || time.Now().Before(end); seed++ {
			seeds <- seed
		}
	}()
	var all sync.WaitGroup
	for _, run := range s.Runs {
		all.Go(func() {
			for seed := range seeds {
				s.check(t, run, fmt.Sprintf("VDO_TEST_SEED=%d", seed), s.Drawn(seed))
			}
		})
	}
	all.Wait()
}

// check runs a program, and shrinks it if it breaks a promise.
func (s Suite[S]) check(t *testing.T, run func(Program[S]) error, name string, p Program[S]) {
	t.Helper()
	err := run(p)
	if err == nil {
		return
	}
	var broken *Broken
	if !errors.As(err, &broken) {
		t.Errorf("%s: %v\n%s", name, err, p)
		return
	}
	end, rule := time.Now().Add(patience), broken.Rule
	short := s.Shrink(p, func(p Program[S]) bool {
		for range 2 { // if the failure needs luck
			var again *Broken
			if time.Now().Before(end) && errors.As(run(p), &again) && again.Rule == rule {
				broken = again
				return true
			}
		}
		return false
	})
	t.Errorf("%s breaks a promise; the shortest program that does:\n\n%s\n%v\n\nall of it:\n\n%s", name, short, broken, p)
}

// Shrink removes steps from a program for as long as it still fails: many at once and then one by one. The returned
// program was the last for which fails was true.
func (s Suite[S]) Shrink(p Program[S], fails func(Program[S]) bool) Program[S] {
	p = slices.Clone(p)
	for again := true; again; {
		again = false
		for size := max(1, len(p)/2); size >= 1; size /= 2 {
			for at := 0; at+size <= len(p); {
				if shorter := slices.Delete(slices.Clone(p), at, at+size); len(shorter) > 0 && fails(shorter) {
					p, again = shorter, true
				} else {
					at += size
				}
			}
		}
	}
	return p
}

// Number reads a variable of the environment.
func Number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
