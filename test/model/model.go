//go:build linux

// Package model runs random programs of vdo-bundle's commands over random locations, with random faults during and
// between them. After each step it checks the invariants of the world.
//
// A [Program] is data with a text. A failure prints the shortest program that still fails, which can run again from
// that text; package random makes programs from seeds. A world executes them with the real program, real registries
// and real files. A model judges each step by its own reading of locations and registries, past the faults and
// without the program's code:
//
//	ends      every command ends; the first signal ends it
//	memory    it never holds more than 100 MiB
//	code      its exit code is documented, and not that of a defect
//	says      a failure gives its reason
//	secret    no key and no password is in its output or its files
//	stays     only files and tags that the command line names change
//	keeps     no bundle, blob, part or signature disappears, unless requested
//	complete  whatever looks like a bundle is one: a tag, an index.json, a file without
//	          .partial
//	proven    if a signer is required, nothing else is pushed or verified
//	result    exit 0 means that it is done: the right root, every blob below it and all
//	          referrers, the bytes of a run without faults, every signature, and
//	          verify accepts it
//	must      an unhindered command succeeds: after a fault the same command completes
//	          the work
//
// It needs Linux: points in time are changes of files.
package model

import (
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// run runs a program in its own world. Its error is a [*random.Broken], or that of creating a world.
func (s *site) run(p Program) error {
	w, err := newWorld(s, mirrorOf(p))
	if err != nil {
		return err
	}
	defer w.close()
	for _, step := range p {
		for _, at := range []place{step.From, step.To} {
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

// mirrorOf returns the registry's options from a program's first step.
func mirrorOf(p Program) registry.Options {
	for _, s := range p {
		if s.Do == "mirror" {
			return registry.Options{Kind: registry.Kind(s.N), TLS: s.has("tls")}
		}
	}
	return registry.Options{}
}

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

// damage damages a location, and records it.
func (w *world) damage(s Step, damage func(*world, Step) error) error {
	w.model.files = nil // observe again
	if err := damage(w, s); err != nil {
		return fmt.Errorf("run %s: %w", s, err)
	}
	if s.Do == "lose" {
		w.model.lost[s.To.repo()] = true
	} else {
		w.model.damaged[s.To] = true
	}
	return nil
}
