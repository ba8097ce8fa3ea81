package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// host is what the client knows of one registry host.
type host struct {
	name string   // as references write it
	base *url.URL // of its API: https://registry-1.docker.io

	small                *slots        // for what is answered at once
	pull, push           *slots        // for large blobs
	pullSmall, pushSmall *slots        // for small ones
	gate                 chan struct{} // held while the host is asked how, or for a token

	noRanges atomic.Bool  // the host does not give ranges of blobs
	chunk    atomic.Int64 // bytes that a request sends of a blob; 0: all of it

	mu        sync.Mutex
	pinged    bool
	challenge challenge
	tokens    map[string]bearer // by path and actions
	logins    map[string]Credential
	secrets   []string  // to be kept out of messages
	notBefore time.Time // it has asked for a pause until then
	// strainedUntil is until when faults are of a cause that has been counted.
	strainedUntil time.Time
	noMount       map[string]bool // repositories that it does not let blobs be taken over from
	noReferrers   map[string]bool // repositories without the referrers API: one host may serve several registries
}

// bearer is a token of a token service.
type bearer struct {
	value   string
	expires time.Time
}

const (
	dockerHub    = "docker.io"
	dockerHubAPI = "registry-1.docker.io"
)

func (c *Client) host(name string) *host {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[name]; h != nil {
		return h
	}
	set := c.settings(name)
	small := func() *slots { return newSlots(fewSmall*set.Concurrency, manySmall*set.Concurrency) }
	h := &host{
		name: name, base: &url.URL{Scheme: "https", Host: name, Path: "/"},
		small: small(), pullSmall: small(), pushSmall: small(),
		pull: newSlots(set.Concurrency, set.Concurrency), push: newSlots(set.Concurrency, set.Concurrency),
		gate:   make(chan struct{}, 1),
		tokens: map[string]bearer{}, logins: map[string]Credential{}, noMount: map[string]bool{}, noReferrers: map[string]bool{},
	}
	h.chunk.Store(set.ChunkSize)
	if name == dockerHub {
		h.base.Host = dockerHubAPI
	}
	if c.plain[name] {
		h.base.Scheme = "http"
	}
	c.hosts[name] = h
	return h
}

// challenge is a WWW-Authenticate header.
type challenge struct {
	scheme string // lower case; "" for none
	params map[string]string
}

// parseChallenge reads a WWW-Authenticate header (RFC 9110, section 11.6.1) of one
// scheme with its parameters. What does not parse is left out.
func parseChallenge(header string) challenge {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header), " ")
	c := challenge{scheme: strings.ToLower(scheme), params: map[string]string{}}
	for rest = strings.TrimLeft(rest, " \t,"); rest != ""; rest = strings.TrimLeft(rest, " \t,") {
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			break
		}
		var v string
		v, rest = cutValue(strings.TrimLeft(value, " \t"))
		c.params[strings.ToLower(strings.TrimSpace(key))] = v
	}
	return c
}

// cutValue parts a token or a quoted string from what follows it.
func cutValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexAny(s, ", \t")
		if i < 0 {
			return s, ""
		}
		return s[:i], s[i:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

// pickChallenge chooses among several headers: a token service before a password.
func pickChallenge(h http.Header) challenge {
	var picked challenge
	for _, line := range h.Values("WWW-Authenticate") {
		c := parseChallenge(line)
		if c.scheme == "bearer" || (c.scheme == "basic" && picked.scheme == "") {
			picked = c
		}
	}
	return picked
}

// access is what a request needs: actions ("pull" or "pull,push") on a path, and to
// pull from another path, where there is one.
type access struct{ path, actions, from string }

// scopes are the access as the token specification writes it.
func (a access) scopes() []string {
	scopes := []string{"repository:" + a.path + ":" + a.actions}
	if a.from != "" {
		scopes = append(scopes, "repository:"+a.from+":pull")
	}
	return scopes
}

func (a access) scope() string { return strings.Join(a.scopes(), " ") }

// authorization returns the Authorization header for a request to the host, or "".
// It asks the host once how it wants it, and one token serves all who wait for it.
func (c *Client) authorization(ctx context.Context, h *host, a access) (string, error) {
	if header, ok := h.known(a); ok {
		return header, nil
	}
	release, err := acquire(ctx, h.gate)
	if err != nil {
		return "", err
	}
	defer release()
	if header, ok := h.known(a); ok {
		return header, nil
	}
	if err := c.ping(ctx, h); err != nil {
		return "", err
	}
	h.mu.Lock()
	ch := h.challenge
	h.mu.Unlock()
	if ch.scheme == "" {
		return "", nil // who does not ask for a login is not told it
	}
	login, err := c.login(ctx, h, a.path)
	if err != nil || ch.scheme != "bearer" {
		return loginHeader(login, ch), err
	}
	t, err := c.token(ctx, h, ch, a, login)
	return "Bearer " + t.value, err
}

// known returns the header where nothing has to be asked for it.
func (h *host) known(a access) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pinged {
		return "", false
	}
	if h.challenge.scheme != "bearer" {
		login, ok := h.logins[a.path]
		return loginHeader(login, h.challenge), ok || h.challenge.scheme == ""
	}
	t := h.tokens[a.scope()]
	return "Bearer " + t.value, t.value != "" && time.Now().Before(t.expires)
}

// loginHeader returns the header for a login without a token service.
func loginHeader(login Credential, ch challenge) string {
	switch {
	case ch.scheme == "":
	case login.RegistryToken != "":
		return "Bearer " + login.RegistryToken
	case login.Username != "" || login.Password != "":
		return basic(login)
	}
	return ""
}

func basic(login Credential) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(login.Username+":"+login.Password))
}

// ping asks GET /v2/ once how the host wants to be logged in to. The caller holds the gate.
func (c *Client) ping(ctx context.Context, h *host) error {
	if h.reached() {
		return nil
	}
	resp, err := c.roundTrip(ctx, c.transport(h.base.Host, false), &http.Request{Method: http.MethodGet, URL: h.base.JoinPath("/v2/")}) //nolint:bodyclose // drain closes it
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if canPassStatus(resp.StatusCode) || resp.StatusCode == http.StatusBadRequest {
		return answer(resp)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pinged = true
	if resp.StatusCode == http.StatusUnauthorized {
		h.challenge = pickChallenge(resp.Header)
	}
	return nil
}

// reached tells whether the host has answered.
func (h *host) reached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pinged
}

// challenged takes note of a 401: a token has run out, or the host wants another login.
func (h *host) challenged(resp *http.Response, a access) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := pickChallenge(resp.Header); ch.scheme != "" {
		h.challenge = ch
	}
	delete(h.tokens, a.scope())
}

// login returns the login for a path of the host, or none.
func (c *Client) login(ctx context.Context, h *host, path string) (Credential, error) {
	h.mu.Lock()
	login, known := h.logins[path]
	h.mu.Unlock()
	if known {
		return login, nil
	}
	login, err := c.opts.Credentials(ctx, h.name, path)
	if err != nil {
		return login, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logins[path] = login
	h.keepSecret(login.Password, login.IdentityToken, login.RegistryToken)
	if login.Password != "" {
		h.keepSecret(base64.StdEncoding.EncodeToString([]byte(login.Username + ":" + login.Password)))
	}
	return login, nil
}

// keepSecret remembers what no message may say. The caller holds the lock.
func (h *host) keepSecret(secrets ...string) {
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
func (h *host) scrub(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

const (
	maxToken     = 128 << 10
	tokenDefault = time.Minute // the token specification's lifetime where none is said
)

// token asks the token service that the host named.
func (c *Client) token(ctx context.Context, h *host, ch challenge, a access, login Credential) (bearer, error) {
	if login.RegistryToken != "" {
		return bearer{login.RegistryToken, time.Now().Add(time.Hour)}, nil
	}
	realm, err := c.realm(h, ch.params["realm"])
	if err != nil {
		return bearer{}, err
	}
	resp, err := c.askToken(ctx, h, realm, ch, a, login) //nolint:bodyclose // drain closes it
	if err != nil {
		return bearer{}, err
	}
	defer drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return bearer{}, tokenRefused(answer(resp))
	}
	t, err := readToken(resp)
	if err != nil {
		return bearer{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keepSecret(t.value)
	h.tokens[a.scope()] = t
	return t, nil
}

// tokenRefused makes of a token service's 400 or 403 what it means: the login is
// not good enough.
func tokenRefused(err error) error {
	var a *answerError
	if errors.As(err, &a) && a.status == http.StatusBadRequest {
		a.status = http.StatusUnauthorized
	}
	return err
}

// askToken sends the request of the distribution project's token specification,
// or its OAuth2 form where the login is a refresh token.
func (c *Client) askToken(ctx context.Context, h *host, realm *url.URL, ch challenge, a access, login Credential) (*http.Response, error) {
	transport := c.transport(realm.Host, realm.Host != h.base.Host)
	form := realm.Query()
	if service := ch.params["service"]; service != "" {
		form.Set("service", service)
	}
	form["scope"] = a.scopes()
	if login.IdentityToken == "" {
		target := *realm
		target.RawQuery = form.Encode()
		req := &http.Request{Method: http.MethodGet, URL: &target, Header: http.Header{}}
		if login.Username != "" || login.Password != "" {
			req.Header.Set("Authorization", basic(login))
		}
		return c.roundTrip(ctx, transport, req)
	}
	form.Set("scope", a.scope())
	form.Set("grant_type", "refresh_token")
	form.Set("client_id", c.opts.UserAgent)
	form.Set("refresh_token", login.IdentityToken)
	req := &http.Request{Method: http.MethodPost, URL: realm, Header: http.Header{}}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body := form.Encode()
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return c.roundTrip(ctx, transport, req)
}

func readToken(resp *http.Response) (bearer, error) {
	data, err := readAll(resp.Body, maxToken)
	if err != nil {
		return bearer{}, err
	}
	var t struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
	}
	if json.Unmarshal(data, &t) != nil || t.Token+t.AccessToken == "" {
		return bearer{}, refused("", errors.New("the token service's answer holds no token"))
	}
	value, life := t.Token, tokenDefault
	if value == "" {
		value = t.AccessToken
	}
	if t.ExpiresIn > 0 && t.ExpiresIn < 1<<31 {
		life = time.Duration(t.ExpiresIn) * time.Second
	}
	return bearer{value, time.Now().Add(life * 4 / 5)}, nil
}

// realm checks where a registry sends the client with its credentials.
func (c *Client) realm(h *host, raw string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, refused("ask the registry's administrator to set the address of its token service",
			fmt.Errorf("the registry names a token service that cannot be trusted: %s", why))
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return bad("it is no URL")
	case u.User != nil:
		return bad("its URL holds a login")
	case u.Scheme != "https" && (u.Scheme != "http" || !c.mayBePlain(h, u.Host)):
		return bad(fmt.Sprintf("%s://%s is not HTTPS", u.Scheme, u.Host))
	case u.Host != h.base.Host && isLoopback(u.Hostname()) && !isLoopback(h.base.Hostname()):
		return bad(u.Host + " is this machine")
	}
	return u, nil
}

// mayBePlain tells whether an address that the host names may be without TLS.
func (c *Client) mayBePlain(h *host, address string) bool {
	return c.plain[address] || (h.base.Scheme == "http" && address == h.base.Host)
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}

func refused(hint string, err error) error {
	return &fault.Error{Reason: fault.Refused, Hint: hint, Err: err}
}
