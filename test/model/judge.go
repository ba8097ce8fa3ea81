//go:build linux

package model

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
)

// maxMemory is the memory limit of a command, in KiB.
const maxMemory = 100 << 10

// A model is the knowledge of a world beyond its readable content.
type model struct {
	places  []place
	now     map[place]content
	files   map[string]fs.FileInfo
	damaged map[place]bool   // by hand: its content may be anything
	lost    map[string]bool  // repositories that lost content, or were lied about
	trail   map[place]string // the command that left unfinished content there
	sums    map[place]string // of the bytes of an archive when it was last whole
	newest  map[string]place // the location of a repository that last received a bundle
	failed  error            // error of a fault itself
}

// observe reads all locations and the metadata of all files.
func (w *world) observe() {
	w.model.now = map[place]content{}
	for _, p := range w.model.places {
		c := w.look(p)
		w.model.now[p] = c
		if c.sound() && c.bytes != "" && !w.model.damaged[p] {
			w.model.sums[p] = c.bytes
		}
	}
	w.model.files = tree(w.dir)
	for name, info := range tree(w.site.path("in")) {
		w.model.files["../in/"+name] = info
	}
}

// A trial is one step with the state before, its outcomes, and the state after.
type trial struct {
	*world
	step          Step
	outcomes      []outcome
	before, after map[place]content
	files         map[string]fs.FileInfo // before
}

// done reports whether one of the processes succeeded.
func (t *trial) done() bool {
	return slices.ContainsFunc(t.outcomes, func(o outcome) bool { return o.code == 0 })
}

func (t *trial) broken(rule, format string, args ...any) *random.Broken {
	detail := fmt.Sprintf(format, args...)
	for _, o := range t.outcomes {
		detail += fmt.Sprintf("\nexit code %d\nstdout: %.2000s\nstderr: %.2000s", o.code, o.stdout, o.stderr)
	}
	return &random.Broken{Rule: rule + " " + t.step.Do, Detail: t.step.String() + ": " + detail}
}

func (t *trial) judge() error {
	for _, rule := range []func() *random.Broken{
		t.ends, t.says, t.stays, t.keeps, t.complete, t.proven, t.result, t.mustDo,
	} {
		if b := rule(); b != nil {
			return b
		}
	}
	return nil
}

// ends checks that every command ends, stays within its memory, and has a documented exit code.
func (t *trial) ends() *random.Broken {
	for _, o := range t.outcomes {
		switch {
		case o.deaf:
			return t.broken("ends", "it does not end, and not when it is told to")
		case o.stuck:
			return t.broken("ends", "it does not end")
		case o.peak > maxMemory:
			return t.broken("memory", "it held %d KiB", o.peak)
		case o.code == -1 && t.step.Fault.Kind == "kill":
		case !slices.Contains([]int{0, 2, 3, 4, 5, 6, 7, 8, 9, 130}, o.code) || strings.Contains(o.stderr, "goroutine "):
			return t.broken("code", "exit code %d", o.code)
		}
	}
	return nil
}

var errorLine = regexp.MustCompile(`(?m)^error: |^\{`)

// says checks that every failure gives a reason, and no output has a secret.
func (t *trial) says() *random.Broken {
	for _, o := range t.outcomes {
		if o.code > 0 && !errorLine.MatchString(o.stderr) {
			return t.broken("says", "there is no error")
		}
		for _, secret := range append(t.site.secrets, t.mirror.Password) {
			if strings.Contains(o.stdout+o.stderr, secret) {
				return t.broken("secret", "it is in the output")
			}
		}
	}
	return nil
}

// writes returns the location that a step may write to.
func (s Step) writes() place {
	switch s.Do {
	case "pull", "sign", "split", "repair", "push", "prune":
		return s.To
	}
	return ""
}

// stays checks that only named files change.
func (t *trial) stays() *random.Broken {
	mayChange := func(name string) bool {
		to := t.step.writes()
		if name == "" || name == "out" || name == "tmp" {
			return true // their times
		}
		if strings.HasPrefix(name, "tmp/") || strings.HasPrefix(name, "out/.vdo-bundle-") { // it could not clean up
			return slices.ContainsFunc(t.outcomes, func(o outcome) bool { return o.code == -1 })
		}
		rest, ok := strings.CutPrefix(name, "out/")
		return ok && to.medium() && strings.Contains(strings.SplitN(rest, "/", 2)[0], to.base())
	}
	all := maps.Clone(t.files)
	maps.Copy(all, t.model.files)
	for _, name := range sorted(all) {
		was, is := t.files[name], t.model.files[name]
		if !same(was, is) && !mayChange(name) {
			return t.broken("stays", "%s: %s, was %s", name, describe(is), describe(was))
		}
	}
	return nil
}

// same compares the metadata of two files, not their bytes: a writer changes the times of a file.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Mode() == b.Mode() && (a.IsDir() || a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())) && os.SameFile(a, b)
}

func describe(i fs.FileInfo) string {
	if i == nil {
		return "not there"
	}
	return fmt.Sprintf("%s, %d bytes, of %s", i.Mode(), i.Size(), i.ModTime().Format("15:04:05.000000"))
}

// replaces reports whether a step was told to replace the bundle of a location.
func (t *trial) replaces(p place) bool {
	s := t.step
	if s.Do == "prune" {
		return p.inMirror() && p.repo() == s.To.repo()
	}
	return s.To == p && (s.Do == "push" || s.Do == "pull" && (p.inMirror() || s.has("replace")) || s.Do == "split" && s.has("replace"))
}

// keeps checks that no bundle, blob, part or signature disappears unless a step requests it.
func (t *trial) keeps() *random.Broken {
	for _, p := range t.model.places {
		was, is := t.before[p], t.after[p]
		if !was.there || was.root == "" { // or nothing of it is readable
			continue
		}
		root := was.root
		if t.replaces(p) {
			if t.step.Do == "prune" {
				if is.there && was.sound() && !is.sound() {
					return t.broken("keeps", "%s lacks %v after the prune", p, is.missing)
				}
				continue
			}
			if p.inMirror() { // the old one lost its tag, and stays
				is = gather(t.repository(p.repo()), root, nil, t.site.keys)
			} else {
				if was.whole() && !is.sound() {
					return t.broken("keeps", "%s was whole, and there is neither the old bundle nor the new one: it lacks %v", p, is.missing)
				}
				continue
			}
		}
		if is.root != root || len(is.lacks(was)) > 0 {
			return t.broken("keeps", "%s had %s, has %s, and lacks %v", p, root, is.root, is.lacks(was))
		}
		if p.parts() {
			for name := range t.files {
				if part, ok := strings.CutPrefix(name, "out/"+p.base()+".p"); ok && len(part) == 3 && t.model.files[name] == nil {
					return t.broken("keeps", "the parity shard %s is gone", name)
				}
			}
		}
	}
	return nil
}

// lied reports whether the registry claims content that it lacks.
func (s Step) lied() bool {
	return strings.HasPrefix(s.Fault.Kind, "forgets") || s.Fault.Kind == "has-all" || s.Fault.Kind == "undead"
}

// copiesDamage reports whether p is the byte-for-byte copy of content damaged by hand: split checks no digest, verify
// does.
func (s Step) copiesDamage(m model, p place) bool {
	return s.Do == "split" && p == s.To && m.damaged[s.From]
}

// complete checks that whatever looks like a bundle is one, after any fault.
func (t *trial) complete() *random.Broken {
	for _, p := range t.model.places {
		c := t.after[p]
		switch {
		case !c.there || c.sound() || t.model.damaged[p] || t.step.copiesDamage(t.model, p) || p.inMirror() && t.model.lost[p.repo()] || t.before[p].there && !t.before[p].sound():
		case t.step.lied() && !t.done(): // the registry said so, and the command found out
			t.model.lost[p.repo()] = true
		default:
			return t.broken("complete", "%s looks like a bundle, and lacks %v", p, c.missing)
		}
	}
	return nil
}

// trusts reports whether signers satisfy the trust that a step demands.
func trusts(trust string, signers []string) bool {
	switch trust {
	case "":
		return true
	case "both":
		return slices.Contains(signers, "k1") && slices.Contains(signers, "k2")
	}
	return slices.Contains(signers, trust)
}

// proven checks that a step that demands a signer uses nothing else.
func (t *trial) proven() *random.Broken {
	s := t.step
	if s.Trust == "" {
		return nil
	}
	from, to := t.before[s.From], t.after[s.To]
	if s.Do == "push" {
		signers := to.signers
		if to.root == from.root {
			signers = from.signers // a liar may have dropped them
		}
		if to.there && to.root != t.before[s.To].root && !trusts(s.Trust, signers) {
			return t.broken("proven", "%s is now %s, signed by %v", s.To, to.root, to.signers)
		}
	}
	if t.done() && s.From != "" && (!from.below() || !trusts(s.Trust, from.signers)) {
		return t.broken("proven", "%s is signed by %v and lacks %v", s.From, from.signers, from.missing)
	}
	return nil
}

// result checks that the work is done after exit 0.
func (t *trial) result() *random.Broken {
	s := t.step
	if !t.done() {
		return nil
	}
	from, to := t.before[s.From], t.after[s.To]
	var wanted content
	switch s.Do {
	case "pull":
		wanted = t.site.bundles[s.Bundle]
		if s.To.medium() && !s.To.dir() && s.Key == "" && s.From == "" && (!t.before[s.To].there || s.has("replace")) && to.bytes != wanted.bytes {
			return t.broken("result", "the bytes differ from those of a run without faults")
		}
		if s.From != "" {
			to = to.without(wanted) // the push finds out whether the base has it
		}
	case "push", "split":
		wanted = from
		if s.Do == "split" && to.bytes != from.bytes && !t.model.damaged[s.From] { // headers are written anew
			return t.broken("result", "the parts are not the archive")
		}
		if s.copiesDamage(t.model, s.To) {
			return nil
		}
	case "repair":
		if want := t.model.sums[s.To]; want != "" && to.bytes != want {
			return t.broken("result", "the parts joined are not what they were")
		}
		return nil
	case "sign":
		if by := t.unsigned(to); by != "" {
			return t.broken("result", "the signature of %s is not there, but of %v", by, to.signers)
		}
		return t.verified(to)
	case "prune":
		return t.pruned(s.To.repo())
	default:
		return nil
	}
	switch {
	case !to.there || to.root != wanted.root:
		return t.broken("result", "%s is %q, wanted %q", s.To, to.root, wanted.root)
	case !to.below() || len(to.left) > 0 && s.Do != "split": // others may have attached to shared images
		return t.broken("result", "%s lacks %v and leaves %v", s.To, to.missing, to.left)
	case len(to.lacks(wanted)) > 0:
		return t.broken("result", "%s lacks %v", s.To, to.lacks(wanted))
	case s.has("provenance") && to.statements == 0:
		return t.broken("result", "%s has no statement of how it was made", s.To)
	case t.unsigned(to) != "":
		return t.broken("result", "%s is signed by %v, not by %s", s.To, to.signers, t.unsigned(to))
	}
	return t.verified(to)
}

// unsigned returns a key whose process claims a signature that is missing. One of two that sign in a registry at once
// may lose. Registries have no lock, and a process checks the tag only right before and after its write.
func (t *trial) unsigned(c content) string {
	if t.step.To.inMirror() && len(t.outcomes) > 1 &&
		(slices.Contains(c.signers, t.step.Key) || slices.Contains(c.signers, t.step.twin(1).Key)) {
		return ""
	}
	for n, o := range t.outcomes {
		if n > 0 && t.step.has("replace") || len(t.outcomes) > 1 && t.step.has("replace") && t.outcomes[1].code == 0 {
			continue // one after the other, as each was told
		}
		if by := t.step.twin(n).Key; o.code == 0 && by != "" && !slices.Contains(c.signers, by) {
			return by
		}
	}
	return ""
}

// verified requires that verify accepts the result.
func (t *trial) verified(c content) *random.Broken {
	s := t.step
	if len(c.signers) == 0 || !c.sound() || t.model.damaged[s.To] && s.Do == "sign" {
		return nil
	}
	verify := Step{Do: "verify", From: s.To, Trust: c.signers[0]}
	t.mirror.Heal()
	p, err := t.start(t.args(verify))
	if err != nil {
		t.model.failed = err
		return nil //nolint:nilerr // the step ends with it
	}
	o := p.wait()
	if o.code != 0 {
		t.outcomes = append(t.outcomes, o)
		return t.broken("result", "%s does not accept it", verify)
	}
	return nil
}

var deletedLine = regexp.MustCompile(`(?m)^deleted\s+(sha256:[0-9a-f]+)`)

// pruned checks that everything reported as deleted is gone, and a bundle remains.
func (t *trial) pruned(repo string) *random.Broken {
	deleted := deletedLine.FindAllStringSubmatch(t.outcomes[0].stdout, -1)
	had := func(p place) bool { return p.inMirror() && p.repo() == repo && t.before[p].there }
	left := !slices.ContainsFunc(t.model.places, had)
	for _, b := range t.site.bundles {
		left = left || t.repository(repo).blob(b.root) != nil
	}
	if !left {
		return t.broken("result", "no bundle is left of them")
	}
	if p := t.model.newest[repo]; t.before[p].there && !t.after[p].there {
		return t.broken("result", "%s, to which a bundle went last, is gone", p)
	}
	for _, m := range deleted {
		for _, p := range t.model.places {
			if c := t.before[p]; strings.HasPrefix(c.root, m[1]) && t.repository(repo).blob(c.root) != nil {
				return t.broken("result", "%s is reported as deleted, and is there", c.root)
			}
		}
	}
	return nil
}

// mustDo checks that an unhindered command succeeds, also after earlier faults, and that a signal has its exit code.
func (t *trial) mustDo() *random.Broken {
	s := t.step
	ready, why := t.ready()
	if !ready {
		return nil
	}
	codes := []int{0}
	switch {
	case s.Fault.Kind == "":
	case s.Fault.Kind == "term" || s.Fault.Kind == "int":
		codes = []int{0, 130}
	case s.Fault.Kind == "second":
		codes = []int{0, 8}
	case s.Fault.Kind == "tamper" && s.Do != "push":
		codes = []int{0, 3}
	default:
		return nil
	}
	for _, o := range t.outcomes {
		if !slices.Contains(codes, o.code) {
			return t.broken("must", "exit code %d, wanted one of %v: %s", o.code, codes, why)
		}
	}
	if s.Fault.Kind == "second" && !t.done() {
		return t.broken("must", "neither of the two is done")
	}
	return nil
}

// ready reports whether a step has everything that it needs, and no obstacle.
func (t *trial) ready() (bool, string) {
	s := t.step
	from, to := t.before[s.From], t.before[s.To]
	clear := func(p place) bool { return !t.model.damaged[p] && !t.model.lost[p.repo()] }
	if !clear(s.From) || !clear(s.To) {
		return false, ""
	}
	free := !to.there && (t.model.trail[s.To] == "" || t.model.trail[s.To] == s.quiet().String())
	switch s.Do {
	case "pull":
		return (s.From == "" || from.sound()) && (s.To.inMirror() || free || to.there && t.model.trail[s.To] == "" && s.has("replace")), "it has only to go on"
	case "push":
		return from.whole() && trusts(s.Trust, from.signers), "the source is whole"
	case "split":
		return from.sound() && (free || to.there && s.has("replace")), "the archive is whole"
	case "sign", "repair":
		return to.sound(), "the bundle is whole"
	case "verify":
		return from.sound() && trusts(s.Trust, from.signers), "the bundle is whole and signed"
	case "prune":
		return slices.ContainsFunc(t.model.places, func(p place) bool {
			return p.inMirror() && p.repo() == s.To.repo() && t.before[p].there && clear(p)
		}), "there are bundles"
	}
	return false, ""
}

func (t *trial) learn() {
	p, quiet := t.step.writes(), t.step.quiet().String()
	if p == "" {
		return
	}
	if !t.done() {
		if was := t.model.trail[p]; was != "" && was != quiet {
			quiet = "several"
		}
		t.model.trail[p] = quiet
		return
	}
	delete(t.model.trail, p)
	switch {
	case p.inMirror() && (t.step.Do == "push" || t.step.Do == "pull"):
		t.model.newest[p.repo()] = p
		delete(t.model.lost, p.repo())
	case t.step.copiesDamage(t.model, p):
		t.model.damaged[p] = true
	case t.step.Do == "repair", t.step.Do == "pull" && (!t.before[p].there || t.step.has("replace")), t.step.Do == "split":
		delete(t.model.damaged, p)
		t.model.sums[p] = t.after[p].bytes
	}
}

// leak looks for secrets in the output of programs.
func (w *world) leak() error {
	for _, dir := range []string{"out", "tmp", "home"} {
		for _, name := range sorted(tree(w.path(dir))) {
			data := readRegular(filepath.Join(w.path(dir), name))
			for _, secret := range append(w.site.secrets, w.mirror.Password) {
				if bytes.Contains(data, []byte(secret)) {
					return &random.Broken{Rule: "secret", Detail: filepath.Join(dir, name) + " holds one"}
				}
			}
		}
	}
	return nil
}
