//go:build linux

package model

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Faults of a command while it runs:
//
//	kill, term, int   the process is killed or signalled at a request or at a change of
//	                  a file
//	cut               from a request on every connection is reset
//	second            the same command runs twice at once; the other signs with another key
//
// liars answer wrongly during the whole command:
var liars = map[string]registry.Fault{
	// The registry confirms an upload and drops it.
	"forgets":          {Match: registry.Match{Method: http.MethodPut, Path: "/blobs/", Query: "digest="}, Times: 1, Status: http.StatusCreated, Header: map[string]string{"Location": "/"}},
	"forgets-manifest": {Match: registry.Match{Method: http.MethodPut, Path: "/manifests/"}, Times: 1, Status: http.StatusCreated, Header: map[string]string{"Location": "/"}},
	// The registry has every blob, and tells no size. (net/http does not compute the length of so long a body.)
	"has-all": {Match: registry.Match{Method: http.MethodHead, Path: "/blobs/"}, Status: http.StatusOK, Body: strings.Repeat(" ", 8<<10)},
	// The registry confirms a deletion and keeps the content.
	"undead": {Match: registry.Match{Method: http.MethodDelete}, Status: http.StatusAccepted},
	// One byte of each blob is wrong.
	"tamper": {Match: registry.Match{Method: http.MethodGet, Path: "/blobs/sha256:"}, Tamper: true},
	// One blob is missing when it is requested.
	"lost": {Match: registry.Match{Method: http.MethodGet, Path: "/blobs/"}, Times: 1, Status: http.StatusNotFound},
}

// twin returns the step of the n-th of two concurrent processes: the second signs with the other key.
func (s Step) twin(n int) Step {
	switch {
	case n == 0 || s.Key == "":
	case s.Key == "k2":
		s.Key = "k1"
	default:
		s.Key = "k2"
	}
	return s
}

// A trigger reports when the point of a fault is reached. The process is held there until its release.
type trigger struct {
	reached <-chan string
	changes <-chan struct{}
	at      int
	gate    chan struct{}
	end     func()
}

func (w *world) arm(s Step) (trigger, error) {
	f := s.Fault
	t := trigger{gate: make(chan struct{}), at: f.At, end: func() {}}
	reg := w.mirror
	if f.On == "up" {
		reg = w.site.upstream
	}
	switch f.Kind {
	case "", "second":
		return t, nil
	case "cut":
		reg.Fail(registry.Fault{After: f.At, Reset: true})
		return t, nil
	case "kill", "term", "int":
		if f.On == "files" {
			var err error
			t.changes, t.end, err = watchFiles(w.path("out"))
			return t, err
		}
		seen := make(chan string, 1)
		t.reached = seen
		reg.Fail(registry.Fault{After: f.At, Times: 1, Wait: t.gate, Seen: seen})
		return t, nil
	}
	lie, ok := liars[f.Kind]
	if !ok {
		return t, errors.New("there is no fault " + f.Kind)
	}
	if lie.Tamper {
		lie.TamperAt = int64(f.At)
	} else {
		lie.After = f.At
	}
	reg.Fail(lie)
	return t, nil
}

// fire waits for the point, and triggers the fault.
func (w *world) fire(s Step, p *process, t trigger) {
	defer close(t.gate)
	if t.reached == nil && t.changes == nil {
		return
	}
	late := time.After(mustEnd)
	for reached := false; !reached; {
		select {
		case <-p.done:
			return
		case <-late:
			return
		case <-t.changes:
			t.at--
			reached = t.at <= 0
		case <-t.reached:
			reached = true
		}
	}
	signals := map[string]os.Signal{"kill": os.Kill, "term": syscall.SIGTERM, "int": os.Interrupt}
	_ = p.cmd.Process.Signal(signals[s.Fault.Kind])
	select { // a held request is not answered before
	case <-p.done:
	case <-late:
	}
}

// damages are the damages to a location between two commands:
//
//	flip     a byte of one of its files changes (also of a killed run's remains)
//	shorten  one of its files ends early
//	remove   one of its files is gone
//	lose     the registry loses a blob
var damages = map[string]func(w *world, s Step) error{
	"flip":    onFile(flip),
	"shorten": onFile(func(name string, size, n int64) error { return os.Truncate(name, n*7919%size) }),
	"remove":  onFile(func(name string, _, _ int64) error { return os.Remove(name) }),
	"lose":    lose,
}

// onFile damages one of the regular files of a location, or of those with an ending.
func onFile(damage func(name string, size, n int64) error) func(*world, Step) error {
	return func(w *world, s Step) error {
		files := map[string]int64{}
		for name, info := range tree(w.path("out")) {
			if info.Mode().IsRegular() && info.Size() > 0 && strings.HasPrefix(name, s.To.base()) && strings.HasSuffix(name, s.File) {
				files[name] = info.Size()
			}
		}
		if len(files) == 0 {
			return nil
		}
		name := sorted(files)[s.N%len(files)]
		return damage(w.path("out", name), files[name], int64(s.N))
	}
}

func flip(name string, size, n int64) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[n*7919%size] ^= 0xff
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // in place: it stays the same file
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// lose removes a blob or manifest of a bundle from a registry, but not the root itself.
func lose(w *world, s Step) error {
	c := w.look(s.To)
	delete(c.good, c.root)
	digests := sorted(c.good)
	if len(digests) == 0 {
		return nil
	}
	digest := digests[s.N%len(digests)]
	for _, path := range []string{"/blobs/", "/manifests/"} {
		w.repository(s.To.repo()).ask("DELETE", path+digest)
	}
	return nil
}
