package remote

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Host is the client's state of one registry host.
type Host struct {
	name string   // as references write it
	base *url.URL // of its API: https://registry-1.docker.io

	small                *slots // for requests that hosts answer at once
	pull, push           *slots // for large blobs
	pullSmall, pushSmall *slots // for small blobs
	flights              singleflight.Group
	chunk                atomic.Int64 // bytes of a blob in one request; 0: all

	mu        sync.Mutex
	pinged    bool
	isOpen    bool // GET /v2/ needs no login, so it proves no password
	challenge challenge
	logins    map[string]*login // by path
	tried     map[string]error  // the latest refusal, or nil, of each password that was sent, as a header
	secrets   []string          // of logins; never in messages
	tokens    []string          // likewise, the latest of them
	notBefore time.Time         // the host demanded a pause until then
	// strainedUntil is the time until which further faults count as the same cause.
	strainedUntil time.Time

	noReferrers sync.Map // paths of repositories without the referrers API: one host may serve several registries
	noMount     sync.Map // paths of repositories from which it does not mount blobs
}

const (
	dockerHub    = "docker.io"
	dockerHubAPI = "registry-1.docker.io"
)

// Host returns the state of a host, by its name in references.
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
		logins: map[string]*login{}, tried: map[string]error{},
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

// reached reports whether the host has answered.
func (h *Host) reached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pinged
}

// loginOf returns the host's challenge and the login for a path, or nil before it was looked up.
func (h *Host) loginOf(path string) (challenge, *login) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.challenge, h.logins[path]
}

// triedWith returns the host's refusal of a password (as its header), or nil, or false before its first use.
func (h *Host) triedWith(password string) (refused error, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	refused, ok = h.tried[password]
	return refused, ok
}

// try records that the host took a password, or refused it.
func (h *Host) try(password string, refused error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tried[password] == nil {
		h.tried[password] = refused
	}
}

// doubt has a password checked before its next use. It may have become wrong, or the host refuses one request so. On
// an open host, where the check proves nothing, the refusal counts.
func (h *Host) doubt(password string, refused error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.tried[password] != nil:
	case h.isOpen:
		h.tried[password] = refused
	default:
		delete(h.tried, password)
	}
}

const (
	keptTokens = 64 // of a host; tokens expire
	// shortestSecret is the least length of a secret to remove: shorter ones occur in any text.
	shortestSecret = 4
)

// keepSecret keeps secrets out of messages for as long as the client lives. The caller holds the lock.
func (h *Host) keepSecret(secrets ...string) { h.secrets = addSecrets(h.secrets, secrets) }

// keepToken does the same for the latest tokens; their number is unbounded. The caller holds the lock.
func (h *Host) keepToken(token string) {
	h.tokens = addSecrets(h.tokens, []string{token})
	h.tokens = h.tokens[max(0, len(h.tokens)-keptTokens):]
}

// addSecrets adds secrets that are new and at least shortestSecret long.
func addSecrets(known, secrets []string) []string {
	for _, s := range secrets {
		if len(s) >= shortestSecret && !slices.Contains(known, s) {
			known = append(known, s)
		}
	}
	return known
}

// scrub removes secrets from a server's text. Scrub before truncating: the beginning of a secret is not recognised.
func (h *Host) scrub(text string) string {
	h.mu.Lock()
	secrets := slices.Concat(h.secrets, h.tokens)
	h.mu.Unlock()
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be a prefix of another
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

// sender names the login that an Authorization header holds, or returns "".
func (h *Host) sender(header string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.logins {
		if header == basic(l.credential) || header == "Bearer "+l.credential.AccessToken {
			return l.credential.String()
		}
	}
	return ""
}

// hasLogin reports whether the client has found a login for the host.
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

// slots is an adaptive concurrency limit. It grows by one with each success until the host reports overload. It is
// then halved, and grows by one with two rounds of successes.
type slots struct {
	free chan struct{} // one token per free slot; its capacity is the user's limit

	mu       sync.Mutex
	limit    int  // current limit of the host
	owed     int  // tokens to withhold on release, since the limit has shrunk
	cautious bool // the host has reported overload before
	good     int  // successes since the limit last changed
}

const (
	// SmallBlob is the size, in bytes, up to which a blob costs a round trip rather than bandwidth. The limit for
	// such blobs starts at fewSmall times and grows to manySmall times the Concurrency. It is at most mostSmall,
	// since each blob has a connection with buffers.
	SmallBlob = 128 << 10
	fewSmall  = 4
	manySmall = 16
	mostSmall = 128
)

// Pulls returns the slots for reading a blob of that size.
func (h *Host) Pulls(size int64) *slots {
	if size <= SmallBlob {
		return h.pullSmall
	}
	return h.pull
}

// Pushes returns the slots for writing a blob, apart from those for reading: a push may read from the same host.
func (h *Host) Pushes(size int64) *slots {
	if size <= SmallBlob {
		return h.pushSmall
	}
	return h.push
}

// newSlots returns slots with the limit first, which may grow to most.
func newSlots(first, most int) *slots {
	s := &slots{free: make(chan struct{}, most), limit: first}
	for range first {
		s.free <- struct{}{}
	}
	return s
}

// Acquire allocates a slot until release is called.
func (s *slots) Acquire(ctx context.Context) (release func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.free:
		return s.release, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give()
}

// give returns a token. The caller holds the lock.
func (s *slots) give() {
	if s.owed > 0 {
		s.owed--
		return
	}
	s.free <- struct{}{}
}

// Most returns the user's limit.
func (s *slots) Most() int { return cap(s.free) }

func (s *slots) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for least := max(1, s.limit/2); s.limit > least; s.limit-- {
		select {
		case <-s.free:
		default:
			s.owed++
		}
	}
	s.good, s.cautious = 0, true
}

func (s *slots) succeed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == s.Most() {
		return
	}
	if s.good++; !s.cautious || s.good >= 2*s.limit {
		s.limit, s.good = s.limit+1, 0
		s.give()
	}
}

// strained records a fault that may come from too many connections, and lowers the limits. Faults within the wait
// count once, since they share a cause. After throttling, no request starts before the wait ends. It reports whether
// that lengthens the host's pause by longPause.
func (h *Host) strained(wait time.Duration, isThrottled bool) (isLong bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	until := now.Add(wait)
	if isThrottled && until.After(h.notBefore) {
		isLong = min(wait, until.Sub(h.notBefore)) >= longPause
		h.notBefore = until
	}
	if now.Before(h.strainedUntil) {
		return isLong
	}
	h.strainedUntil = until
	for _, s := range h.slots() {
		s.shrink()
	}
	return isLong
}

// succeeded counts an answer of the host.
func (h *Host) succeeded() {
	for _, s := range h.slots() {
		s.succeed()
	}
}

func (h *Host) slots() [5]*slots {
	return [...]*slots{h.small, h.pull, h.push, h.pullSmall, h.pushSmall}
}

// ready waits until the host's pause is over.
func (c *Client) ready(ctx context.Context, h *Host) error {
	h.mu.Lock()
	wait := time.Until(h.notBefore)
	h.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, wait)
}

// paced is how many bytes are read or sent between two checks of the rate limiter.
const paced = 64 << 10

// pace waits until the rate limit of all transfers allows n more bytes.
func (c *Client) pace(ctx context.Context, n int) error {
	if c.rate == nil || n <= 0 {
		return nil
	}
	return c.opts.Sleep(ctx, c.rate.ReserveN(time.Now(), n).Delay())
}

// piece returns as much of a buffer as may be filled at once.
func (c *Client) piece(p []byte) []byte {
	if c.rate == nil {
		return p
	}
	return p[:min(len(p), paced)]
}
