package model

import (
	"math/rand/v2"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
)

// event is one thing that happens: data, so that programs can be printed and read.
type event struct {
	Kind string `json:"event"`
	Arg  string `json:"arg"`
	// At, where it is not 0, holds the event back until that request of the next pass
	// to the API server.
	At int `json:"at,omitempty"`
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
	p := program{{Kind: "begin", Arg: pick(r, kindOf("begin").args)}}
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
			e := event{Kind: k.name, Arg: pick(r, k.args)}
			if k.name == interruption || (k.anywhere && r.IntN(6) == 0) {
				e.At = 1 + r.IntN(longestPass)
			}
			p = append(p, e)
			break
		}
		switch r.IntN(10) {
		case 0, 1, 2:
			p = append(p, event{Kind: "pass", Arg: "drivers"})
		case 3:
			p = append(p, event{Kind: "pass", Arg: pick(r, []string{"vcenter", "bundle"})}, event{Kind: "pass", Arg: "drivers"})
		case 4, 5:
			p = append(p, event{Kind: "settle", Arg: "all"})
		case 6:
			p = append(p, event{Kind: "peace", Arg: "four intervals"})
		}
	}
	return p
}

func pick(r *rand.Rand, all []string) string { return all[r.IntN(len(all))] }
