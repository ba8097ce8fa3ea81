package model

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
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
			return e, errors.New("the number of a request is missing")
		}
		e.at, line = n, more
	}
	e.kind, e.arg, _ = strings.Cut(line, ": ")
	k := kindOf(e.kind)
	if !slices.Contains(k.args, e.arg) || (k.name == interruption && e.at == 0) {
		return e, errors.New("no such event")
	}
	return e, nil
}

// program is a list of events.
type program = random.Program[event]

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

// draw makes a program. Passes come between its events, as a manager would start them:
// sometimes one, sometimes all, sometimes none.
func draw(r *rand.Rand) program {
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
