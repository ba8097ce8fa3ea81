//go:build linux

package model

// Shrink makes a program shorter and simpler for as long as it still fails: without
// steps, then without faults and options. It asks fails again and again; what that
// says for the program that Shrink returns was true.
func Shrink(p Program, fails func(Program) bool) Program {
	for again := true; again; {
		again = false
		for size := max(1, len(p)/2); size >= 1; size /= 2 {
			for at := 0; at+size <= len(p); {
				shorter := append(append(Program{}, p[:at]...), p[at+size:]...)
				if len(shorter) > 0 && fails(shorter) {
					p, again = shorter, true
					continue
				}
				at++
			}
		}
		for at := range p {
			for _, simpler := range p[at].simpler() {
				candidate := append(Program{}, p...)
				candidate[at] = simpler
				if fails(candidate) {
					p, again = candidate, true
					break
				}
			}
		}
	}
	return p
}

// simpler are steps that do less than this one.
func (s Step) simpler() (out []Step) {
	with := func(change func(*Step)) {
		t := s
		t.With = append([]string(nil), s.With...)
		if change(&t); t.String() != s.String() {
			out = append(out, t)
		}
	}
	with(func(t *Step) { t.Fault = Fault{} })
	for _, option := range s.With {
		with(func(t *Step) { t.With = drop(t.With, option) })
	}
	if s.Bundle != "a" && s.Bundle != "" {
		with(func(t *Step) { t.Bundle = "a" })
	}
	if s.Do != "sign" {
		with(func(t *Step) { t.Key = "" })
	}
	with(func(t *Step) { t.Trust = "" })
	with(func(t *Step) { t.Fault.At /= 2 })
	return out
}
