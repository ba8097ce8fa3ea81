//go:build linux

// Package model runs random programs of vdo-bundle's commands over random media, with
// random faults during and between them, and holds the world after each step against
// what has to be true whatever happened.
//
// A [Program] is data with a text: what fails is printed as the shortest program that
// still fails, and can be run again from that text; package random makes one from a seed. A
// world executes it with the real program, real registries and real files. A model
// judges each step by what it reads of media and registries itself, past the faults
// and without the program's own code:
//
//	ends      every command ends; the first signal ends it
//	memory    it never holds more than 100 MiB
//	code      its exit code is documented, and not that of a defect
//	says      what fails says why
//	secret    no key and no password is in its output or in what it wrote
//	stays     nothing changes but what the command line names
//	keeps     no bundle, blob, part or signature that was there is gone, unless asked
//	complete  what looks like a bundle is one: a tag, an index.json, a file without
//	          .partial
//	proven    where someone must have signed, nothing else is pushed or verified
//	result    exit 0 means that it is done: the right root, every blob below it and all
//	          that is attached, the bytes of a run without faults, every signature, and
//	          verify accepts it
//	must      what nothing hinders is done: after a fault the same command goes on to
//	          its end
//
// It needs Linux: points in time are changes of files.
package model

import (
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// run runs a program in a world of its own. Its error is a [*random.Broken], or that of a world
// that could not be made.
func (s *site) run(p Program) error {
	w, err := newWorld(s, mirrorOf(p))
	if err != nil {
		return err
	}
	defer w.close()
	for _, step := range p {
		for _, at := range []place{place(step.From), place(step.To)} {
			if at != "" && !slices.Contains(w.model.places, at) {
				w.model.places = append(w.model.places, at)
			}
		}
	}
	for _, step := range p {
		if err := w.step(step); err != nil {
			return err
		}
	}
	return w.leak()
}

// mirrorOf is the kind of registry that a program has: that which its first step names.
func mirrorOf(p Program) registry.Options {
	for _, s := range p {
		if s.Do == "mirror" {
			return registry.Options{Kind: registry.Kind(s.N), TLS: s.has("tls")}
		}
	}
	return registry.Options{}
}

// step runs and judges one step.
func (w *world) step(s Step) error {
	if s.Do == "mirror" {
		return nil
	}
	w.clock.Add(1)
	if damage, ok := damages[s.Do]; ok {
		return w.damage(s, damage)
	}
	if w.model.files == nil {
		w.observe()
	}
	t := &trial{world: w, step: s, before: w.model.now, files: w.model.files}
	var err error
	if t.outcomes, err = w.do(s); err != nil {
		return fmt.Errorf("run %s: %w", s, err)
	}
	w.observe()
	t.after = w.model.now
	if err := t.judge(); err != nil {
		return err
	}
	t.learn()
	return w.model.failed
}

// damage damages a medium, and keeps it in mind.
func (w *world) damage(s Step, damage func(*world, Step) error) error {
	p := place(s.To)
	w.model.files = nil // look again
	if err := damage(w, s); err != nil {
		return fmt.Errorf("run %s: %w", s, err)
	}
	repo, _, _ := p.mirror()
	switch s.Do {
	case "lose":
		w.model.lost[repo] = true
	default:
		w.model.damaged[p] = true
	}
	return nil
}
