package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is one thing that happens: data, so that programs can be printed and read.
type event struct {
	kind, arg string
	// at, where it is not 0, holds the event back until that request of the next pass
	// to the API server.
	at int
}

const midPass = "at request "

// String returns "kind: arg", or "at request 17: kind: arg".
func (e event) String() string {
	if e.at > 0 {
		return fmt.Sprintf("%s%d: %s: %s", midPass, e.at, e.kind, e.arg)
	}
	return e.kind + ": " + e.arg
}

// parse reads what String wrote.
func parse(line string) (event, error) {
	var e event
	if rest, ok := strings.CutPrefix(line, midPass); ok {
		number, more, _ := strings.Cut(rest, ": ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return e, fmt.Errorf("%q: the number of a request is missing", line)
		}
		e.at, line = n, more
	}
	e.kind, e.arg, _ = strings.Cut(line, ": ")
	k := kindOf(e.kind)
	if k == nil || !slices.Contains(k.args, e.arg) || (k.name == interruption && e.at == 0) {
		return e, fmt.Errorf("%q is not an event", line)
	}
	return e, nil
}

// program is a list of events.
type program []event

// String has an event a line.
func (p program) String() string {
	var out strings.Builder
	for _, e := range p {
		out.WriteString(e.String() + "\n")
	}
	return out.String()
}

// read reads a program; empty lines and those that begin with # say nothing.
func read(text string) (program, error) {
	var p program
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e, err := parse(line)
		if err != nil {
			return nil, err
		}
		p = append(p, e)
	}
	return p, nil
}

// kind is a sort of events.
type kind struct {
	name   string
	weight int
	args   []string
	// anywhere is set where it may happen in the middle of a pass.
	anywhere bool
	do       func(w *world, arg string)
}

// interruption is the kind whose events happen to a request.
const interruption = "API server"

// longestPass is how many requests of a pass events are put between.
const longestPass = 160

// draw makes a program of so many events from a seed. Passes come between them, as a
// manager would start them: sometimes one, sometimes all, sometimes none.
func draw(seed uint64, length int) program {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // not a secret, and to be had again
	p := program{{kind: "begin", arg: pick(r, kindOf("begin").args)}}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for range length {
		n := r.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n >= 0 {
				continue
			}
			e := event{kind: k.name, arg: pick(r, k.args)}
			if k.name == interruption || (k.anywhere && r.IntN(6) == 0) {
				e.at = 1 + r.IntN(longestPass)
			}
			p = append(p, e)
			break
		}
		switch r.IntN(10) {
		case 0, 1, 2:
			p = append(p, event{kind: "pass", arg: "drivers"})
		case 3:
			p = append(p, event{kind: "pass", arg: pick(r, []string{"vcenter", "bundle"})}, event{kind: "pass", arg: "drivers"})
		case 4, 5:
			p = append(p, event{kind: "settle", arg: "all"})
		case 6:
			p = append(p, event{kind: "peace", arg: "four intervals"})
		}
	}
	return p
}

func pick(r *rand.Rand, all []string) string { return all[r.IntN(len(all))] }

// shrink drops events while the program still fails in the same way, first many at
// once, then one by one, until a time.
func shrink(p program, until time.Time, fails func(program) bool) program {
	for size := len(p) / 2; size > 0; {
		dropped := false
		for at := 0; at+size <= len(p) && time.Now().Before(until); {
			candidate := slices.Delete(slices.Clone(p), at, at+size)
			if fails(candidate) {
				p, dropped = candidate, true
			} else {
				at += size
			}
		}
		if !dropped || size > 1 {
			size /= 2
		}
	}
	return p
}
