//go:build linux

package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A world is the directory and mirror of one program. The directory has out, with the locations, tmp, home and login.
type world struct {
	site   *site
	dir    string
	mirror *registry.Registry
	clock  atomic.Int64 // of the mirror, in minutes: a step takes one
	model  model
}

func newWorld(s *site, mirror registry.Options) (*world, error) {
	s.programs++
	w := &world{site: s, dir: s.path(fmt.Sprintf("p%d", s.programs)), model: model{
		now: map[place]content{}, damaged: map[place]bool{}, lost: map[string]bool{},
		trail: map[place]string{}, sums: map[place]string{}, newest: map[string]place{},
	}}
	mirror.Auth, mirror.Password = registry.Basic, "canary-of-the-login"
	began := time.Now()
	mirror.Clock = func() time.Time { return began.Add(time.Duration(w.clock.Load()) * time.Minute) }
	var err error
	if w.mirror, err = registry.New(mirror); err != nil {
		return nil, err
	}
	errs := []error{writeFile(w.path("login", "config.json"), w.mirror.DockerConfig()), writeFile(w.path("login", "ca.crt"), w.mirror.CA())}
	for _, name := range []string{"out", "tmp", "home"} {
		errs = append(errs, os.MkdirAll(w.path(name), 0o755))
	}
	return w, errors.Join(errs...)
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

func (w *world) close() {
	w.site.upstream.Heal()
	w.site.upstream.ForgetRequests()
	_ = w.mirror.Close()
	_ = os.RemoveAll(w.dir)
}

// A place is the location of a bundle. Its text: x.tar and y.tar are archives, p.tar and q.tar archives in parts,
// oci:f and oci:g directories, reg:REPO:TAG is in the mirror.
type place string

func (p place) parts() bool {
	return strings.HasPrefix(string(p), "p.") || strings.HasPrefix(string(p), "q.")
}
func (p place) dir() bool { return strings.HasPrefix(string(p), "oci:") }
func (p place) mirror() (repo, tag string, ok bool) {
	rest, ok := strings.CutPrefix(string(p), "reg:")
	repo, tag, _ = strings.Cut(rest, ":")
	return repo, tag, ok
}
func (p place) repo() string   { repo, _, _ := p.mirror(); return repo }
func (p place) inMirror() bool { return strings.HasPrefix(string(p), "reg:") }

// base is the prefix of the location's files in out.
func (p place) base() string { return strings.TrimPrefix(string(p), "oci:") }

// medium reports whether the location is in out, not in the mirror.
func (p place) medium() bool { return p != "" && !p.inMirror() }

// arg returns the argument for a location that is read.
func (w *world) arg(p place) string {
	repo, tag, inMirror := p.mirror()
	switch {
	case inMirror && tag == "":
		return w.mirror.Host + "/vdo/" + repo
	case inMirror:
		return w.mirror.Host + "/vdo/" + repo + ":" + tag
	case p.dir():
		return "oci:out/" + p.base()
	case p.parts():
		return "out/" + p.base() + ".parts"
	}
	return "out/" + p.base()
}

// destination returns the argument for a location that is written.
func (w *world) destination(p place) string {
	if p.parts() {
		return "out/" + p.base()
	}
	return w.arg(p)
}

func (w *world) repository(name string) repository {
	return repository{w.mirror.Stored(), "vdo/" + name, w.site.known}
}

func (w *world) look(p place) content {
	repo, tag, inMirror := p.mirror()
	switch {
	case inMirror && tag == "":
		return content{}
	case inMirror:
		return w.repository(repo).read(tag, w.site.keys)
	case p.dir():
		return readFolder(w.path("out", p.base()), w.site.keys)
	case p.parts():
		return readParts(w.path("out", p.base()+".parts"), w.site.keys)
	case !p.medium():
		return content{}
	}
	name := w.path("out", p.base())
	if _, err := os.Lstat(name); err != nil {
		return content{}
	}
	c := readTar(readRegular(name), w.site.keys)
	c.there = true
	return c
}

// leads returns the flags by which a command finds upstream and the mirror.
func (w *world) leads(command string) (flags []string) {
	switch command {
	case "split", "repair":
		return nil
	case "lock", "pull":
		up := w.site.upstream.Host
		flags = append(flags, "--manifest-dir", "../in/manifests", "--plain-http", up, "--source-map", "registry.test="+up+"/x")
	}
	flags = append(flags, "--retries", "1", "--timeout", "4s")
	if w.mirror.TLS() {
		return append(flags, "--ca-file", "login/ca.crt")
	}
	return append(flags, "--plain-http", w.mirror.Host)
}

func (w *world) args(s Step) []string {
	args := append([]string{s.Do}, w.leads(s.Do)...)
	add := func(more ...string) { args = append(args, more...) }
	from := w.arg(s.From)
	switch s.Do {
	case "lock":
		add("--matrix", "../in/matrix-"+s.Bundle+".yaml", "--release", selections[s.Bundle])
		add("-o", "out/"+string(s.To), "-q", "--replace")
	case "pull":
		add("--matrix", "../in/matrix-"+s.Bundle+".yaml", "--lock", "../in/lock-"+s.Bundle+".yaml", "-o", w.destination(s.To), "-q")
		add(signing(s, "--sign-key")...)
		if s.Bundle == "c" {
			add("--upstream-signatures", "all")
		}
		if s.To.parts() {
			add("--volume-size", "64KiB", "--parity", "1")
		}
		if s.From != "" {
			add("--base", from)
		}
	case "sign":
		add(w.arg(s.To))
		add(signing(s, "--key")...)
	case "split":
		add(from, "--volume-size", "64KiB", "--parity", "1", "-o", w.destination(s.To))
	case "repair":
		add(w.arg(s.To))
	case "push":
		add(from, w.arg(s.To), "-q")
	case "prune":
		add(w.arg(s.To), "--keep", "1", "--yes", "-q")
	case "verify":
		add(from)
	}
	for _, option := range s.With {
		switch option {
		case "replace", "provenance", "check-all":
			add("--" + option)
		case "single":
			add("--concurrency", "1")
		case "chunks":
			add("--chunk-size", "256KiB")
		case "mount":
			add("--mount-from", w.arg("reg:r"))
		}
	}
	return append(args, trusting(s.Trust)...)
}

func signing(s Step, flag string) []string {
	if s.Key == "" {
		return nil
	}
	return []string{flag, "../in/" + s.Key + ".key"}
}

func trusting(trust string) []string {
	switch trust {
	case "":
		return nil
	case "both":
		return []string{"--policy", "../in/both.yaml"}
	}
	return []string{"--key", "../in/" + trust + ".pub"}
}

// do runs a step's command, with its fault; a second process makes a second outcome.
func (w *world) do(s Step) ([]outcome, error) {
	defer w.mirror.Heal()
	defer w.site.upstream.Heal()
	t, err := w.arm(s)
	if err != nil {
		return nil, err
	}
	defer t.end()
	p, err := w.start(w.args(s))
	if err != nil {
		return nil, err
	}
	var other *process
	if s.Fault.Kind == "second" {
		if other, err = w.start(w.args(s.twin(1))); err != nil {
			return []outcome{p.wait()}, err
		}
	}
	w.fire(s, p, t)
	out := []outcome{p.wait()}
	if other != nil {
		out = append(out, other.wait())
	}
	return out, nil
}
