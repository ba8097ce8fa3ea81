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

// maxMemory is what a command may hold, in KiB.
const maxMemory = 100 << 10

// A model is what is known of a world beside what can be read there.
type model struct {
	places  []place
	now     map[place]content
	files   map[string]fs.FileInfo
	damaged map[place]bool   // by hand: what is read there may be anything
	lost    map[string]bool  // repositories that lost something, or were lied about
	trail   map[place]string // the command that left something unfinished there
	sums    map[place]string // of the bytes of an archive when it was last whole
	newest  map[string]place // the place of a repository to which a bundle went last
	failed  error            // of a fault itself
}

func newModel() model {
	return model{
		now: map[place]content{}, damaged: map[place]bool{},
		lost: map[string]bool{}, trail: map[place]string{}, sums: map[place]string{},
		newest: map[string]place{},
	}
}

// observe reads all places and looks at all files.
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

// A trial is one step with what was before, what it came to, and what is after.
type trial struct {
	*world
	step          Step
	outcomes      []outcome
	before, after map[place]content
	files         map[string]fs.FileInfo // before
}

// done tells that one of the processes says so.
func (t *trial) done() bool {
	return slices.ContainsFunc(t.outcomes, func(o outcome) bool { return o.code == 0 })
}

func (t *trial) broken(rule, format string, args ...any) *random.Broken {
	detail := fmt.Sprintf(format, args...)
	for _, o := range t.outcomes {
		detail += fmt.Sprintf("\nexit code %d\nstdout: %s\nstderr: %s", o.code, clip(o.stdout), clip(o.stderr))
	}
	return &random.Broken{Rule: rule + " " + t.step.Do, Detail: t.step.String() + ": " + detail}
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// judge holds a step against all rules.
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

// ends: every command ends, holds little memory, and ends with a code that is documented.
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

// says: what failed says why, and nothing says a secret.
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

// writes tells the place that a step may write to.
func (s Step) writes() place {
	switch s.Do {
	case "pull", "sign", "split", "repair", "push", "prune":
		return place(s.To)
	}
	return ""
}

// stays: nothing changes but what is named.
func (t *trial) stays() *random.Broken {
	mayChange := func(name string) bool {
		to := t.step.writes()
		if name == "" || name == "out" || name == "tmp" {
			return true // their times
		}
		if strings.HasPrefix(name, "tmp/") || strings.HasPrefix(name, "out/.vdo-bundle-") { // it had no chance to clean up
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

// same compares what is known of two files without their bytes: whoever writes to a
// file changes its times.
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

// replaces tells that a step was asked to put another bundle where one was.
func (t *trial) replaces(p place) bool {
	s := t.step
	_, _, inMirror := p.mirror()
	if s.Do == "prune" {
		repo, _, _ := place(s.To).mirror()
		of, _, _ := p.mirror()
		return inMirror && repo == of
	}
	return place(s.To) == p && (s.Do == "push" || s.Do == "pull" && (inMirror || s.has("replace")) || s.Do == "split" && s.has("replace"))
}

// keeps: no bundle, blob, part or signature that was there is gone, unless it was requested.
func (t *trial) keeps() *random.Broken {
	for _, p := range t.model.places {
		was, is := t.before[p], t.after[p]
		if !was.there || was.root == "" { // or nothing of it can be read
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
			repo, _, inMirror := p.mirror()
			if inMirror && root != "" { // the old one has no tag any more, and stays
				is = gather(t.repository(repo), root, nil, t.site.keys)
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
					return t.broken("keeps", "the recovery part %s is gone", name)
				}
			}
		}
	}
	return nil
}

// lied tells that the registry says it has what it has not.
func (s Step) lied() bool {
	return strings.HasPrefix(s.Fault.Kind, "forgets") || s.Fault.Kind == "has-all" || s.Fault.Kind == "undead"
}

// copiesDamage tells that p is the copy, byte for byte, of what was damaged by hand: a split
// looks at no digest, verify does.
func (s Step) copiesDamage(m model, p place) bool {
	return s.Do == "split" && p == place(s.To) && m.damaged[place(s.From)]
}

// complete: what looks like a bundle is one, whatever happened.
func (t *trial) complete() *random.Broken {
	for _, p := range t.model.places {
		repo, _, inMirror := p.mirror()
		c := t.after[p]
		switch {
		case !c.there || c.sound() || t.model.damaged[p] || t.step.copiesDamage(t.model, p) || inMirror && t.model.lost[repo] || t.before[p].there && !t.before[p].sound():
		case t.step.lied() && !t.done(): // it was told so, and found out
			t.model.lost[repo] = true
		default:
			return t.broken("complete", "%s looks like a bundle, and lacks %v", p, c.missing)
		}
	}
	return nil
}

// trusts tells whether signers satisfy what a step demands.
func trusts(trust string, signers []string) bool {
	switch trust {
	case "":
		return true
	case "both":
		return slices.Contains(signers, "k1") && slices.Contains(signers, "k2")
	}
	return slices.Contains(signers, trust)
}

// proven: where someone must have signed, nothing else is used.
func (t *trial) proven() *random.Broken {
	s := t.step
	if s.Trust == "" {
		return nil
	}
	from, to := t.before[place(s.From)], t.after[place(s.To)]
	if s.Do == "push" {
		signers := to.signers
		if to.root == from.root {
			signers = from.signers // which a liar may not have kept
		}
		if to.there && to.root != t.before[place(s.To)].root && !trusts(s.Trust, signers) {
			return t.broken("proven", "%s is now %s, signed by %v", s.To, to.root, to.signers)
		}
	}
	if t.done() && s.From != "" && (!from.below() || !trusts(s.Trust, from.signers)) {
		return t.broken("proven", "%s is signed by %v and lacks %v", s.From, from.signers, from.missing)
	}
	return nil
}

// result: exit 0 means that it is done.
func (t *trial) result() *random.Broken {
	s := t.step
	if !t.done() {
		return nil
	}
	from, to := t.before[place(s.From)], t.after[place(s.To)]
	repo, _, _ := place(s.To).mirror()
	var wanted content
	switch s.Do {
	case "pull":
		wanted = t.site.bundles[s.Bundle]
		if place(s.To).medium() && !place(s.To).dir() && s.Key == "" && s.From == "" && (!t.before[place(s.To)].there || s.has("replace")) && to.bytes != wanted.bytes {
			return t.broken("result", "the bytes differ from those of a run without faults")
		}
		if s.From != "" {
			to = to.without(wanted) // whether the base has it is found out at the push
		}
	case "push", "split":
		wanted = from
		if s.Do == "split" && to.bytes != from.bytes {
			return t.broken("result", "the parts are not the archive")
		}
		if s.copiesDamage(t.model, place(s.To)) {
			return nil
		}
	case "repair":
		if want := t.model.sums[place(s.To)]; want != "" && to.bytes != want {
			return t.broken("result", "the parts joined are not what they were")
		}
		return nil
	case "sign":
		if by := t.unsigned(to); by != "" {
			return t.broken("result", "the signature of %s is not there, but of %v", by, to.signers)
		}
		return t.verified(to)
	case "prune":
		return t.pruned(repo)
	default:
		return nil
	}
	switch {
	case !to.there || to.root != wanted.root:
		return t.broken("result", "%s is %q, wanted %q", s.To, to.root, wanted.root)
	case !to.whole() && (s.Do != "split" || !to.sound()):
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

// unsigned is a key with which a process says that it has signed, and has not. Of two
// who sign in a registry at once it may be one: registries have no lock, the tag is only
// looked at right before it is written and after.
func (t *trial) unsigned(c content) string {
	if _, _, inMirror := place(t.step.To).mirror(); inMirror && len(t.outcomes) > 1 &&
		(slices.Contains(c.signers, t.step.Key) || slices.Contains(c.signers, t.step.twin(1).Key)) {
		return ""
	}
	for n, o := range t.outcomes {
		if n > 0 && t.step.has("replace") || len(t.outcomes) > 1 && t.step.has("replace") && t.outcomes[1].code == 0 {
			continue // one after the other, and each was asked to
		}
		if by := t.step.twin(n).Key; o.code == 0 && by != "" && !slices.Contains(c.signers, by) {
			return by
		}
	}
	return ""
}

// verified demands that verify accepts what was made.
func (t *trial) verified(c content) *random.Broken {
	s := t.step
	if len(c.signers) == 0 || !c.sound() || t.model.damaged[place(s.To)] && s.Do == "sign" {
		return nil
	}
	verify := Step{Do: "verify", From: s.To, Trust: c.signers[0]}
	t.mirror.Heal()
	p, err := t.start(t.args(verify), nil)
	if err != nil {
		t.model.failed = err
		return nil //nolint:nilerr // it is what the step ends with
	}
	o := p.wait()
	if o.code != 0 {
		t.outcomes = append(t.outcomes, o)
		return t.broken("result", "%s does not accept it", verify)
	}
	return nil
}

var deletedLine = regexp.MustCompile(`(?m)^deleted\s+(sha256:[0-9a-f]+)`)

// pruned: what it says is deleted is gone, and a bundle is left.
func (t *trial) pruned(repo string) *random.Broken {
	left := false // under a tag or without one
	for _, b := range t.site.bundles {
		left = left || t.repository(repo).blob(b.root) != nil
	}
	if !left {
		return t.broken("result", "no bundle is left of them")
	}
	if p := t.model.newest[repo]; t.before[p].there && !t.after[p].there {
		return t.broken("result", "%s, to which a bundle went last, is gone", p)
	}
	for _, m := range deletedLine.FindAllStringSubmatch(t.outcomes[0].stdout, -1) {
		for _, p := range t.model.places {
			if c := t.before[p]; strings.HasPrefix(c.root, m[1]) && t.repository(repo).blob(c.root) != nil {
				return t.broken("result", "%s is reported as deleted, and is there", c.root)
			}
		}
	}
	return nil
}

// mustDo: what nothing hinders is done, also after what went before; a signal ends a
// command with its own code.
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

// ready tells that a step has all that it needs, and nothing in its way.
func (t *trial) ready() (bool, string) {
	s := t.step
	from, to := t.before[place(s.From)], t.before[place(s.To)]
	clear := func(p place) bool {
		repo, _, _ := p.mirror()
		return !t.model.damaged[p] && !t.model.lost[repo]
	}
	if !clear(place(s.From)) || !clear(place(s.To)) {
		return false, ""
	}
	_, _, inMirror := place(s.To).mirror()
	free := !to.there && (t.model.trail[place(s.To)] == "" || t.model.trail[place(s.To)] == s.quiet().String())
	switch s.Do {
	case "pull":
		return (s.From == "" || from.sound()) && (inMirror || free || to.there && t.model.trail[place(s.To)] == "" && s.has("replace")), "it has only to go on"
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
			of, _, ok := p.mirror()
			repo, _, _ := place(s.To).mirror()
			return ok && of == repo && t.before[p].there && clear(p)
		}), "there are bundles"
	}
	return false, ""
}

// learn keeps in mind what a step left.
func (t *trial) learn() {
	p := t.step.writes()
	repo, _, inMirror := p.mirror()
	switch {
	case p == "":
	case !t.done():
		if was := t.model.trail[p]; was != "" && was != t.step.quiet().String() {
			t.model.trail[p] = "several"
			return
		}
		t.model.trail[p] = t.step.quiet().String()
	default:
		delete(t.model.trail, p)
		if inMirror && (t.step.Do == "push" || t.step.Do == "pull") {
			t.model.newest[repo] = p
		}
		switch {
		case inMirror && (t.step.Do == "push" || t.step.Do == "pull"):
			delete(t.model.lost, repo)
		case t.step.copiesDamage(t.model, p):
			t.model.damaged[p] = true
		case t.step.Do == "repair", t.step.Do == "pull" && (!t.before[p].there || t.step.has("replace")), t.step.Do == "split":
			delete(t.model.damaged, p)
		}
	}
}

// leak looks for secrets in what programs wrote.
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
