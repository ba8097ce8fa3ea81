//go:build linux

package model

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Faults that happen to a command while it runs:
//
//	kill, term, int   the process is killed or signalled at a request or at a change of
//	                  a file
//	cut               from a request on every connection is reset
//	second            the same command runs twice at once; the other signs with another key
//
// and the liars, which answer so for the whole command:
var liars = map[string]registry.Fault{
	// An upload is confirmed and not kept.
	"forgets":          {Match: registry.Match{Method: http.MethodPut, Path: "/blobs/", Query: "digest="}, Times: 1, Status: http.StatusCreated, Header: map[string]string{"Location": "/"}},
	"forgets-manifest": {Match: registry.Match{Method: http.MethodPut, Path: "/manifests/"}, Times: 1, Status: http.StatusCreated, Header: map[string]string{"Location": "/"}},
	// Every blob is there, of no size that it would tell. (So long a body that net/http
	// does not work its length out.)
	"has-all": {Match: registry.Match{Method: http.MethodHead, Path: "/blobs/"}, Status: http.StatusOK, Body: strings.Repeat(" ", 8<<10)},
	// A deletion is confirmed and not done.
	"undead": {Match: registry.Match{Method: http.MethodDelete}, Status: http.StatusAccepted},
	// One byte of each blob is another.
	"tamper": {Match: registry.Match{Method: http.MethodGet, Path: "/blobs/sha256:"}, Tamper: true},
	// One blob is not there when it is requested.
	"lost": {Match: registry.Match{Method: http.MethodGet, Path: "/blobs/"}, Times: 1, Status: http.StatusNotFound},
}

// twin is the step as the n-th of two processes does it at once: someone else signs.
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

// A trigger tells when the point has come at which a fault happens; what is held back
// there goes on once it is released.
type trigger struct {
	reached <-chan string
	changes <-chan struct{}
	at      int
	gate    chan struct{}
	end     func()
}

// arm makes a fault ready.
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

// fire waits for the point, and lets the fault happen.
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
	switch s.Fault.Kind {
	case "kill":
		_ = p.cmd.Process.Kill()
	case "term":
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	case "int":
		_ = p.cmd.Process.Signal(syscall.SIGINT)
	}
	select { // what was held back is not answered before
	case <-p.done:
	case <-late:
	}
}
