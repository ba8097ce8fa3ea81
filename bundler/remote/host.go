package remote

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Host is what the client knows of one registry host.
type Host struct {
	name string   // as references write it
	base *url.URL // of its API: https://registry-1.docker.io

	small                *slots // for what is answered at once
	pull, push           *slots // for large blobs
	pullSmall, pushSmall *slots // for small ones
	flights              singleflight.Group
	chunk                atomic.Int64 // bytes that a request sends of a blob; 0: all of it

	mu        sync.Mutex
	pinged    bool
	challenge challenge
	logins    map[string]*login // by path
	secrets   []string          // of logins, to be kept out of messages
	tokens    []string          // likewise, the last of them
	notBefore time.Time         // it has asked for a pause until then
	// strainedUntil is until when faults are of a cause that has been counted.
	strainedUntil time.Time

	noReferrers sync.Map // paths of repositories without the referrers API: one host may serve several registries
	noMount     sync.Map // paths of repositories that it does not let blobs be taken over from
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
	set := c.opts.Hosts[name]
	set.Concurrency = cmp.Or(max(set.Concurrency, 0), c.opts.Concurrency)
	small := func() *slots {
		return newSlots(min(fewSmall*set.Concurrency, mostSmall), min(manySmall*set.Concurrency, mostSmall))
	}
	h := &Host{
		name: name, base: &url.URL{Scheme: "https", Host: name, Path: "/"},
		small: small(), pullSmall: small(), pushSmall: small(),
		pull: newSlots(set.Concurrency, set.Concurrency), push: newSlots(set.Concurrency, set.Concurrency),
		logins: map[string]*login{},
	}
	h.chunk.Store(cmp.Or(set.ChunkSize, c.opts.ChunkSize))
	if name == dockerHub {
		h.base.Host = dockerHubAPI
	}
	if set.PlainHTTP {
		h.base.Scheme = "http"
	}
	c.hosts[name] = h
	return h
}

// reached tells whether the host has answered.
func (h *Host) reached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pinged
}

// loginOf returns how the host wants to be logged in to, and the login for a path, nil where
// it has not been looked for.
func (h *Host) loginOf(path string) (challenge, *login) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.challenge, h.logins[path]
}

const (
	keptTokens = 64 // of a host; tokens expire
	// shortestSecret is the length from which a secret is taken out of messages: what is
	// shorter is found in any text, and would only make it unreadable.
	shortestSecret = 4
)

// keepSecret remembers what no message may say, for as long as the client lives. The
// caller holds the lock.
func (h *Host) keepSecret(secrets ...string) { h.secrets = addSecrets(h.secrets, secrets) }

// keepToken remembers the same of a token, which come without end. The caller holds the lock.
func (h *Host) keepToken(token string) {
	h.tokens = addSecrets(h.tokens, []string{token})
	h.tokens = h.tokens[max(0, len(h.tokens)-keptTokens):]
}

// addSecrets adds those that are new and long enough to be told apart from other text.
func addSecrets(known, secrets []string) []string {
	for _, s := range secrets {
		if len(s) >= shortestSecret && !slices.Contains(known, s) {
			known = append(known, s)
		}
	}
	return known
}

// scrub takes secrets out of a text that a server sent. What is to be cut is scrubbed
// first: the beginning of a secret would not be known any more.
func (h *Host) scrub(text string) string {
	h.mu.Lock()
	secrets := slices.Concat(h.secrets, h.tokens)
	h.mu.Unlock()
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may begin another
	for _, s := range secrets {
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
