package remote

import (
	"net/url"
	"strings"
	"sync"
	"time"
)

// Host is what the client knows of one registry host.
type Host struct {
	name string   // as references write it
	base *url.URL // of its API: https://registry-1.docker.io

	small                *Slots        // for what is answered at once
	pull, push           *Slots        // for large blobs
	pullSmall, pushSmall *Slots        // for small ones
	gate                 chan struct{} // held while the host is asked how it wants to be logged in to

	mu        sync.Mutex
	pinged    bool
	challenge challenge
	logins    map[string]*login // by path
	secrets   []string          // to be kept out of messages
	notBefore time.Time         // it has asked for a pause until then
	// strainedUntil is until when faults are of a cause that has been counted.
	strainedUntil time.Time
	noReferrers   map[string]bool // repositories without the referrers API: one host may serve several registries
}

const (
	dockerHub    = "docker.io"
	dockerHubAPI = "registry-1.docker.io"
)

// Host returns what is known of a host, named as references write it.
func (c *Client) Host(name string) *Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[name]; h != nil {
		return h
	}
	set := c.Settings(name)
	small := func() *Slots {
		return NewSlots(min(fewSmall*set.Concurrency, mostSmall), min(manySmall*set.Concurrency, mostSmall))
	}
	h := &Host{
		name: name, base: &url.URL{Scheme: "https", Host: name, Path: "/"},
		small: small(), pullSmall: small(), pushSmall: small(),
		pull: NewSlots(set.Concurrency, set.Concurrency), push: NewSlots(set.Concurrency, set.Concurrency),
		gate:   make(chan struct{}, 1),
		logins: map[string]*login{}, noReferrers: map[string]bool{},
	}
	if name == dockerHub {
		h.base.Host = dockerHubAPI
	}
	if c.plain[name] {
		h.base.Scheme = "http"
	}
	c.hosts[name] = h
	return h
}

// Name is how references write the host.
func (h *Host) Name() string { return h.name }

// Small are the slots for requests that are answered at once.
func (h *Host) Small() *Slots { return h.small }

// reached tells whether the host has answered.
func (h *Host) reached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pinged
}

// keepSecret remembers what no message may say. The caller holds the lock.
func (h *Host) keepSecret(secrets ...string) {
	for _, s := range secrets {
		if s != "" {
			h.secrets = append(h.secrets, s)
		}
	}
	if extra := len(h.secrets) - 64; extra > 0 {
		h.secrets = h.secrets[extra:]
	}
}

// scrub takes secrets out of a text that a server sent.
func (h *Host) scrub(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

// hasLogin tells whether the client has found a login for the host.
func (h *Host) hasLogin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.logins {
		if l.credential != (Credential{}) {
			return true
		}
	}
	return false
}

func (h *Host) lacksReferrers(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noReferrers[path]
}

func (h *Host) noteNoReferrers(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noReferrers[path] = true
}
