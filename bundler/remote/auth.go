package remote

import (
	"bytes"
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
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Access is what a request needs: actions ("pull" or "pull,push") on a path, and to
// pull from another path, where there is one. Without a path it is to be let in.
type Access struct{ Path, Actions, From string }

// scopes are the access as the token specification writes it.
func (a Access) scopes() []string {
	var scopes []string
	if a.Path != "" {
		scopes = append(scopes, "repository:"+a.Path+":"+a.Actions)
	}
	if a.From != "" {
		scopes = append(scopes, "repository:"+a.From+":pull")
	}
	return scopes
}

// authorization returns the Authorization header for a request to the host, or "".
// It asks the host once how it wants it, and one token serves all who wait for it.
func (c *Client) authorization(ctx context.Context, h *Host, a Access) (string, error) {
	ch, err := c.challengeOf(ctx, h)
	if err != nil || ch.scheme == "" {
		return "", err // who does not ask for a login is not told it
	}
	l, err := c.login(ctx, h, a.Path)
	switch {
	case err != nil:
		return "", err
	case l.credential.AccessToken != "":
		return "Bearer " + l.credential.AccessToken, nil
	case ch.scheme != "bearer" && (l.credential.Username == "" || l.credential.Password == ""):
		return "", nil
	}
	return l.header(ctx, a)
}

// challengeOf returns how the host wants to be logged in to.
func (c *Client) challengeOf(ctx context.Context, h *Host) (challenge, error) {
	if ch, known := h.challenged(); known {
		return ch, nil
	}
	release, err := acquire(ctx, h.gate)
	if err != nil {
		return challenge{}, err
	}
	defer release()
	if ch, known := h.challenged(); known {
		return ch, nil
	}
	if err := c.ping(ctx, h); err != nil {
		return challenge{}, err
	}
	ch, _ := h.challenged()
	return ch, nil
}

// challenged returns the host's challenge, once it has answered.
func (h *Host) challenged() (ch challenge, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.challenge, h.pinged
}

// ping asks GET /v2/ once how the host wants to be logged in to. The caller holds the gate.
func (c *Client) ping(ctx context.Context, h *Host) error {
	resp, err := c.roundTrip(ctx, c.transport(h.base.Host, false), &http.Request{Method: http.MethodGet, URL: h.base.JoinPath("/v2/")}) //nolint:bodyclose // Drain closes it
	if err != nil {
		return err
	}
	defer Drain(resp.Body)
	if CanPassStatus(resp.StatusCode) || resp.StatusCode == http.StatusBadRequest {
		return h.answer(resp)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pinged = true
	if resp.StatusCode == http.StatusUnauthorized {
		h.challenge = pickChallenge(resp.Header)
	}
	return nil
}

// refusedLogin takes note of a 401: a token has run out, or the host wants another login.
func (h *Host) refusedLogin(resp *http.Response, a Access) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := pickChallenge(resp.Header); ch.scheme != "" {
		h.challenge = ch
	}
	if l := h.logins[a.Path]; l != nil {
		l.tokens.forget(strings.TrimPrefix(resp.Request.Header.Get("Authorization"), "Bearer "))
	}
}

// login is the login for a path of a host, with oras' client that has it let in. That
// client never speaks to the registry: it is shown the challenge that the host gave
// when it was asked, and asks the token service. So no request is sent that the host
// would refuse for want of a token, with a body or without; and a token service at a
// private address of a site, which oras refuses where its name is not the registry's,
// is asked once it has passed the check of realm.
type login struct {
	client     *Client
	host       *Host
	credential auth.Credential
	oras       *auth.Client
	tokens     *tokens
}

// login returns that for a path of the host. It is looked for once, by whoever holds the
// gate: a credential helper is a program.
func (c *Client) login(ctx context.Context, h *Host, path string) (*login, error) {
	if l := h.loginOf(path); l != nil {
		return l, nil
	}
	release, err := acquire(ctx, h.gate)
	if err != nil {
		return nil, err
	}
	defer release()
	if l := h.loginOf(path); l != nil {
		return l, nil
	}
	credential, err := c.opts.Credentials(ctx, h.name, path)
	if err != nil {
		return nil, err
	}
	l := &login{client: c, host: h, credential: credential, tokens: &tokens{Cache: auth.NewCache(), until: map[string]time.Time{}, latest: map[string]string{}}}
	l.oras = &auth.Client{
		Client:     &http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Credential: func(context.Context, string) (auth.Credential, error) { return credential, nil },
		Cache:      l.tokens, ClientID: c.opts.UserAgent,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logins[path] = l
	h.keepSecret(credential.Password, credential.RefreshToken, credential.AccessToken)
	if credential.Password != "" {
		h.keepSecret(base64.StdEncoding.EncodeToString([]byte(credential.Username + ":" + credential.Password)))
	}
	return l, nil
}

func (h *Host) loginOf(path string) *login {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logins[path]
}

// Paths of what oras' client asks for; neither is sent to the registry.
const (
	apiPath   = "/v2/"
	tokenPath = "/token"
)

// header returns the Authorization header for an access.
func (l *login) header(ctx context.Context, a Access) (string, error) {
	ctx = auth.WithScopes(ctx, a.scopes()...)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.host.base.JoinPath(apiPath).String(), nil)
	if err != nil {
		return "", err
	}
	resp, err := l.oras.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address that oras was given in place of the token service's
		}
		return "", err
	}
	_ = resp.Body.Close()
	return resp.Request.Header.Get("Authorization"), nil
}

// RoundTrip answers oras' client: with the host's challenge, or with success where it
// sends what is due. That is what the host wants now: oras begins with the scheme that it
// has used before, and a host may ask for another one than it did at /v2/. What it asks of
// the token service goes there.
func (l *login) RoundTrip(req *http.Request) (*http.Response, error) {
	ch, _ := l.host.challenged()
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req, ProtoMajor: 1, ProtoMinor: 1}
	scheme, _, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	switch {
	case req.URL.Path == tokenPath:
		return l.askToken(req, ch)
	case strings.EqualFold(scheme, ch.scheme):
	case ch.scheme == "bearer":
		resp.StatusCode = http.StatusUnauthorized
		resp.Header.Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=%q", l.host.base.JoinPath(tokenPath).String(), ch.params["service"]))
	default:
		resp.StatusCode = http.StatusUnauthorized
		resp.Header.Set("WWW-Authenticate", "Basic")
	}
	return resp, nil
}

const (
	maxToken     = 128 << 10
	tokenDefault = time.Minute // the token specification's lifetime where none is given
)

// askToken sends oras' request to the token service that the host named.
func (l *login) askToken(req *http.Request, ch challenge) (*http.Response, error) {
	realm, err := l.client.realm(l.host, ch.params["realm"])
	if err != nil {
		return nil, err
	}
	form := realm.Query()
	for key, values := range req.URL.Query() {
		form[key] = values
	}
	realm.RawQuery = form.Encode()
	resp, err := l.followToken(req.Clone(req.Context()), realm)
	if err != nil {
		return nil, err
	}
	defer Drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, tokenRefused(l.host.answer(resp))
	}
	data, err := ReadAll(resp.Body, maxToken)
	if err != nil {
		return nil, err
	}
	if err := l.taken(data); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// followToken makes a request to a token service, and goes where the answer points: the
// login goes to no other host than the service's.
func (l *login) followToken(req *http.Request, realm *url.URL) (*http.Response, error) {
	req.URL, req.Host = realm, ""
	for hop := 0; ; hop++ {
		transport := l.client.transport(req.URL.Host, req.URL.Host != l.host.base.Host)
		resp, err := l.client.roundTrip(req.Context(), transport, req)
		if err != nil || !isRedirect(resp.StatusCode, req.Method) {
			return resp, err
		}
		Drain(resp.Body)
		if hop == maxRedirects {
			return nil, Refused("", errors.New("the token service redirects without end"))
		}
		if req.URL, err = l.client.Location(l.host, req.URL, resp); err != nil {
			return nil, err
		}
		if req.URL.Host != realm.Host {
			req.Header.Del("Authorization")
			if req.GetBody != nil {
				return nil, Refused("name that service in the registry's settings",
					fmt.Errorf("the token service sends the login on to another host, %s", req.URL.Host))
			}
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// tokenRefused makes of a token service's 400 what it means: the login is not good
// enough.
func tokenRefused(err error) error {
	var a *AnswerError
	if errors.As(err, &a) && a.Status == http.StatusBadRequest {
		a.Status = http.StatusUnauthorized
	}
	return err
}

// taken takes note of the token in an answer, and of how long it is good.
func (l *login) taken(data []byte) error {
	var t struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
	}
	if json.Unmarshal(data, &t) != nil || t.Token+t.AccessToken == "" {
		return Refused("", errors.New("the token service's answer holds no token"))
	}
	life := tokenDefault
	if t.ExpiresIn > 0 && t.ExpiresIn < 1<<31 {
		life = time.Duration(t.ExpiresIn) * time.Second
	}
	l.host.mu.Lock()
	l.host.keepTokens(t.Token, t.AccessToken)
	l.host.mu.Unlock()
	until := time.Now().Add(life * 4 / 5)
	l.tokens.good(t.Token, until)
	l.tokens.good(t.AccessToken, until)
	return nil
}

// realm checks where a registry sends the client with its credentials.
func (c *Client) realm(h *Host, raw string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, Refused("ask the registry's administrator to set the address of its token service",
			fmt.Errorf("the registry names a token service that cannot be trusted: %s", why))
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return bad("it is not a URL")
	case u.User != nil:
		return bad("its URL holds a login")
	case u.Scheme != "https" && (u.Scheme != "http" || !c.mayBePlain(h, u.Host)):
		return bad(fmt.Sprintf("%s://%s is not HTTPS", u.Scheme, u.Host))
	case u.Host != h.base.Host && isLoopback(u.Hostname()) && !isLoopback(h.base.Hostname()):
		return bad(u.Host + " is this machine")
	case u.Host == h.base.Host:
		return u, nil
	}
	if err := c.stranger(u.Hostname()); err != nil {
		return bad(err.Error())
	}
	return u, nil
}

// mayBePlain tells whether an address that the host names may be without TLS.
func (c *Client) mayBePlain(h *Host, address string) bool {
	return c.plain[address] || (h.base.Scheme == "http" && address == h.base.Host)
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}

// Refused is a fault of what a server wants and does not get.
func Refused(hint string, err error) error {
	return &fault.Error{Reason: fault.Refused, Hint: hint, Err: err}
}
