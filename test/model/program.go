//go:build linux

package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Program is a list of steps. Its text has one step a line.
type Program []Step

// A Step is a command, or something that happens to a medium between two commands.
// Its text is the verb and what it has of the fields: "push from=x.tar to=reg:r:1
// trust=k1 with=check-all fault=kill@mirror:7".
type Step struct {
	// Do is the verb: lock, pull, sign, split, repair, push, prune, serve, verify or
	// inspect; or flip, cut, remove, link, fifo, swell or lose, see damage.go.
	Do string
	// Bundle is the selection that lock and pull take: a, b or c.
	Bundle string
	// From and To are places. What works in place has only To.
	From, To string
	// Key signs, Trust is who must have signed: k1, k2, signer; both, of a policy that
	// wants k1 and k2.
	Key, Trust string
	// With are further options.
	With []string
	// File is a file of the medium that is damaged, by the end of its name; N says where.
	File  string
	N     int
	Fault Fault
}

// A Fault is what goes wrong while a command runs. Its text is "kind", "kind@on" or
// "kind@on:at".
type Fault struct {
	Kind string
	On   string // mirror, up (the upstream registry) or files
	At   int    // at which request or change of a file, or how much
}

// String is the fault's text.
func (f Fault) String() string {
	switch {
	case f.On == "":
		return f.Kind
	case f.At == 0:
		return f.Kind + "@" + f.On
	}
	return fmt.Sprintf("%s@%s:%d", f.Kind, f.On, f.At)
}

func parseFault(s string) (f Fault, err error) {
	f.Kind, f.On, _ = strings.Cut(s, "@")
	on, at, counted := strings.Cut(f.On, ":")
	if counted {
		f.On = on
		f.At, err = strconv.Atoi(at)
	}
	return f, err
}

// String is the step's text.
func (s Step) String() string {
	words := []string{s.Do}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+"="+value)
		}
	}
	add("bundle", s.Bundle)
	add("from", s.From)
	add("to", s.To)
	add("key", s.Key)
	add("trust", s.Trust)
	add("with", strings.Join(s.With, ","))
	add("file", s.File)
	if s.N != 0 {
		add("n", strconv.Itoa(s.N))
	}
	add("fault", s.Fault.String())
	return strings.Join(words, " ")
}

// ParseStep reads a step's text.
func ParseStep(line string) (Step, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Step{}, fmt.Errorf("%q is not a step", line)
	}
	s := Step{Do: words[0]}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "bundle":
			s.Bundle = value
		case "from":
			s.From = value
		case "to":
			s.To = value
		case "key":
			s.Key = value
		case "trust":
			s.Trust = value
		case "with":
			s.With = strings.Split(value, ",")
		case "file":
			s.File = value
		case "n":
			s.N, err = strconv.Atoi(value)
		case "fault":
			s.Fault, err = parseFault(value)
		default:
			err = fmt.Errorf("there is no %q", name)
		}
		if err != nil {
			return Step{}, fmt.Errorf("step %q: %w", line, err)
		}
	}
	return s, nil
}

func (s Step) has(option string) bool { return slices.Contains(s.With, option) }

// quiet is the step without its fault.
func (s Step) quiet() Step {
	s.Fault = Fault{}
	return s
}

// String is the program's text.
func (p Program) String() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// ParseProgram reads a program's text. Empty lines and those that begin with # say nothing.
func ParseProgram(text string) (Program, error) {
	var p Program
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := ParseStep(line)
		if err != nil {
			return nil, err
		}
		p = append(p, s)
	}
	return p, nil
}

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
