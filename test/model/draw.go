//go:build linux

package model

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// draw makes a program from random numbers: the same numbers give the same program.
func draw(r *rand.Rand) Program {
	d := &drawing{Rand: r, filled: map[place]string{}}
	if d.chance(3) {
		d.add(Step{Do: "mirror", N: d.IntN(2), With: d.options("tls")})
	}
	for len(d.program) < 3 || len(d.program) < 8 && !d.chance(4) {
		d.command()
	}
	return d.program
}

// A drawing is a program that is being drawn. filled are the locations that may have content, so that commands have
// work to do.
type drawing struct {
	*rand.Rand
	program Program
	filled  map[place]string // the bundle
}

func (d *drawing) add(s Step) { d.program = append(d.program, s) }

// chance is true once in n times.
func (d *drawing) chance(n int) bool { return d.IntN(n) == 0 }

func (d *drawing) of(choices ...string) string { return choices[d.IntN(len(choices))] }
func (d *drawing) at(choices ...place) place   { return choices[d.IntN(len(choices))] }

func (d *drawing) options(choices ...string) (out []string) {
	for _, c := range choices {
		if d.chance(3) {
			out = append(out, c)
		}
	}
	return out
}

// full returns a location with content among those that satisfy ok; "" if none does.
func (d *drawing) full(ok func(place) bool) place {
	found := slices.DeleteFunc(sorted(d.filled), func(p place) bool { return !ok(p) })
	if len(found) == 0 {
		return ""
	}
	return d.at(found...)
}

func isTar(p place) bool { return p.medium() && !p.dir() && !p.parts() }
func isAny(place) bool   { return true }

// command draws a command, its fault, and perhaps a repetition.
func (d *drawing) command() {
	s, ok := d.draw()
	if !ok {
		s = Step{Do: "pull", Bundle: d.of("a", "a", "b", "c"), To: d.at("x.tar", "p.tar", "oci:f"), Key: d.of("", "k1")}
	}
	if d.chance(2) {
		s.With = append(s.With, "single")
	}
	if !ok || d.chance(2) {
		s.Fault = d.fault(s)
	}
	if s.Do == "split" || s.Do == "repair" || s.Do == "prune" {
		s.With = drop(s.With, "single") // the command has no flag for it
	}
	d.add(s)
	switch {
	case s.Do == "push" || s.Do == "split":
		d.filled[s.To] = d.filled[s.From]
	case s.Bundle != "":
		d.filled[s.To] = s.Bundle
	}
	if s.Fault.Kind == "" || d.chance(4) {
		return
	}
	if d.chance(3) {
		d.damage(s.writes())
	}
	d.add(s.quiet())
}

func drop(options []string, option string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == option })
}

// draw draws a command without a fault. It is not ok if the command would have no work.
func (d *drawing) draw() (s Step, ok bool) {
	switch d.IntN(13) {
	case 0, 1, 2, 3:
		return d.pull(), true
	case 4, 5:
		s = Step{Do: "sign", To: d.full(func(p place) bool { return !p.parts() }), Key: d.of("k1", "k1", "k2", "k1")}
		return s, s.To != ""
	case 6, 7, 8:
		s = Step{Do: "push", From: d.full(isAny), To: d.at("reg:r:1", "reg:r:2", "reg:s:1"), Trust: d.of("", "k1", "k1", "both"), With: d.options("check-all", "chunks", "mount")}
		return s, s.From != "" && s.From != s.To
	case 9:
		s = Step{Do: "split", From: d.full(isTar), To: d.at("p.tar", "q.tar"), With: d.options("replace", "replace")}
		return s, s.From != ""
	case 10:
		s = Step{Do: "repair", To: d.full(place.parts)}
		if s.To != "" {
			d.add(Step{Do: d.of("flip", "remove", "shorten"), To: s.To, File: d.of(".001", ".002", ".003", ".p001"), N: 1 + d.IntN(1000)})
		}
		return s, s.To != ""
	case 11:
		if d.full(place.inMirror) == "" {
			return s, false
		}
		if from := d.full(place.medium); from != "" && d.chance(3) { // the tag moves right before
			d.add(Step{Do: "push", From: from, To: d.at("reg:r:1", "reg:r:2", "reg:s:1")})
			d.filled[d.program[len(d.program)-1].To] = d.filled[from]
		}
		return Step{Do: "prune", To: d.at("reg:r", "reg:r", "reg:s")}, true
	}
	s = Step{Do: "verify", From: d.full(isAny), Trust: d.of("k1", "k1", "k2", "both")}
	if s.From != "" && d.chance(3) {
		d.damage(s.From)
	}
	return s, s.From != ""
}

func (d *drawing) pull() Step {
	s := Step{Do: "pull", Bundle: d.of("a", "a", "b", "c"), To: d.at("x.tar", "x.tar", "y.tar", "p.tar", "oci:f", "oci:g", "reg:r:1", "reg:s:1"), Key: d.of("", "k1", "k1"), With: d.options("replace")}
	if s.Key != "" && d.chance(3) {
		s.With = append(s.With, "provenance")
	}
	if s.To.inMirror() {
		s.With = append(drop(s.With, "replace"), d.options("check-all")...)
	}
	if base := d.full(place.medium); base != "" && base != s.To && !s.To.inMirror() && d.chance(4) {
		s.From = base
	}
	return s
}

func (d *drawing) fault(s Step) Fault {
	signal := d.of("kill", "kill", "term", "int")
	switch {
	case s.Do == "pull" && s.To.inMirror() && d.chance(2), s.Do == "push", s.Do == "prune", s.From.inMirror(), s.Do == "sign" && s.To.inMirror():
		choices := []Fault{
			{signal, "mirror", d.IntN(60)}, {signal, "mirror", d.IntN(12)}, {"cut", "mirror", d.IntN(50)},
			{"lost", "mirror", d.IntN(4)},
		}
		switch s.Do {
		case "pull", "push", "sign":
			choices = append(choices, Fault{"forgets", "mirror", d.IntN(12)}, Fault{"forgets-manifest", "mirror", d.IntN(6)}, Fault{"has-all", "mirror", 0}, Fault{Kind: "second"})
		case "prune":
			choices = append(choices, Fault{"undead", "mirror", 0}, Fault{"undead", "mirror", 0})
		}
		if s.From.inMirror() && strings.Count(string(s.From), ":") == 2 && s.Do != "pull" {
			choices = append(choices, Fault{"tamper", "mirror", d.IntN(2000)})
		}
		return choices[d.IntN(len(choices))]
	case s.Do == "pull":
		choices := []Fault{
			{signal, "up", d.IntN(20)}, {signal, "up", d.IntN(20)}, {signal, "files", 1 + d.IntN(120)}, {signal, "files", 1 + d.IntN(30)}, {"cut", "up", d.IntN(20)},
			{"tamper", "up", d.IntN(2000)}, {"lost", "up", d.IntN(10)},
			{Kind: "second"},
		}
		return choices[d.IntN(len(choices))]
	case s.Do == "verify":
		return Fault{signal, "files", 1}
	}
	choices := []Fault{{signal, "files", 1 + d.IntN(40)}, {signal, "files", 1 + d.IntN(12)}, {Kind: "second"}}
	return choices[d.IntN(len(choices))]
}

func (d *drawing) damage(p place) {
	s := Step{To: p, N: 1 + d.IntN(5000)}
	switch {
	case p == "" || p.inMirror() && strings.Count(string(p), ":") < 2:
		return
	case p.inMirror():
		s.Do = "lose"
	default:
		s.Do = d.of("flip", "flip", "shorten", "remove")
	}
	d.add(s)
}
