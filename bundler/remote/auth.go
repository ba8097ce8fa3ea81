package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Access is what a request needs: actions ("pull" or "pull,push") on a path, and optionally pull from another path.
// An empty path needs a login only.
type Access struct{ Path, Actions, From string }

// scopes returns the access as the token specification writes it.
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

// login is the login for a path of a host, with its tokens by scope. The host's lock guards them.
type login struct {
	credential Credential
	tokens     map[string]token
}

// token is a bearer token. It is used until shortly before it expires, as a refused request may have a large body.
type token struct {
	text  string
	until time.Time
}

const (
	maxToken     = 128 << 10
	tokenDefault = time.Minute // the token specification's lifetime if none is given
)

// authorization returns the Authorization header for a request to the host, or "". All callers share one ping of the
// host, one login (a credential helper is a program) and one token. A refused login is looked up once more, as it may
// have expired.
func (c *Client) authorization(ctx context.Context, h *Host, a Access) (string, error) {
	if err := h.once(ctx, "ping", h.reached, func(ctx context.Context) error { return c.ping(ctx, h, "") }); err != nil {
		return "", err
	}
	ch, l := h.loginOf(a.Path)
	if ch.scheme == "" {
		return "", nil // the client sends no login unless the host asks
	}
	if l == nil {
		if err := c.findLogin(ctx, h, a.Path, nil); err != nil {
			return "", err
		}
		ch, l = h.loginOf(a.Path)
	}
	header, err := c.use(ctx, h, l, ch, a)
	if isUnauthorized(err) && c.findLogin(ctx, h, a.Path, l) == nil {
		if _, other := h.loginOf(a.Path); other != l {
			return c.use(ctx, h, other, ch, a)
		}
	}
	return header, err
}

// use returns the Authorization header that a login gives. The first use of a password is one request for all callers,
// and so is the next use after a refused request. No request starts with a refused password: registries lock accounts.
func (c *Client) use(ctx context.Context, h *Host, l *login, ch challenge, a Access) (string, error) {
	header, isWhole := l.header(ch)
	password := basic(l.credential)
	send := func(ctx context.Context) (err error) {
		if isWhole {
			err = c.ping(ctx, h, header)
		} else {
			err = c.bearer(ctx, h, l, ch, a)
		}
		if err == nil || isUnauthorized(err) {
			h.try(password, err)
		}
		return err
	}
	if has := l.credential; has.Password != "" && has.AccessToken == "" {
		tried := func() bool { _, ok := h.triedWith(password); return ok }
		err := h.once(ctx, "first use\x00"+password, tried, send)
		if refused, _ := h.triedWith(password); refused != nil || err != nil {
			return "", cmp.Or(err, refused)
		}
	}
	if isWhole {
		return header, nil
	}
	err := send(ctx)
	return "Bearer " + l.token(h, a).text, err
}

// header returns the Authorization header of the login itself, or false if the host wants a token instead.
func (l *login) header(ch challenge) (header string, isWhole bool) {
	switch has := l.credential; {
	case has.AccessToken != "":
		return "Bearer " + has.AccessToken, true
	case ch.scheme == "bearer":
		return "", false
	case has.Username == "" || has.Password == "":
		return "", true
	}
	return basic(l.credential), true
}

// longestOnce limits a login, its token or a host's first answer, with typing a password. It ends hanging helpers.
const longestOnce = 10 * time.Minute

var errLongLogin = fmt.Errorf("the login took longer than %s: see whether a credential helper waits for something", longestOnce)

// once runs do once for all callers with the same key. Its error fails all of them, so that they do not wait for it
// again one by one. A caller whose ctx ends does not stop it for the others.
func (h *Host) once(ctx context.Context, key string, done func() bool, do func(context.Context) error) error {
	if done() {
		return nil
	}
	result := h.flights.DoChan(key, func() (any, error) {
		if done() {
			return nil, nil //nolint:nilnil // there is no value
		}
		all, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), longestOnce, errLongLogin)
		defer cancel()
		err := do(all)
		if cause := context.Cause(all); err != nil && cause != nil {
			err = cause
		}
		return nil, err
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func basic(c Credential) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
}

// ping asks GET /v2/ which login the host wants, or with a header whether the host takes that password.
func (c *Client) ping(ctx context.Context, h *Host, header string) error {
	req := &http.Request{Method: http.MethodGet, URL: h.base.JoinPath("/v2/"), Header: http.Header{}}
	if header != "" {
		req.Header.Set("Authorization", header)
	}
	resp, err := c.roundTrip(ctx, c.transport(h.base.Host, false), req) //nolint:bodyclose // Drain closes it
	if err != nil {
		return err
	}
	defer Drain(resp.Body)
	ch := pickChallenge(resp.Header)
	isRefused := resp.StatusCode == http.StatusUnauthorized && header != "" && ch.scheme != "bearer"
	if CanPassStatus(resp.StatusCode) || resp.StatusCode == http.StatusBadRequest || isRefused {
		return h.answer(resp)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pinged = true
	if header == "" {
		h.isOpen = resp.StatusCode != http.StatusUnauthorized
	}
	if resp.StatusCode == http.StatusUnauthorized {
		h.challenge = ch
	}
	return nil
}

// findLogin looks up the login for a path. If it differs from the known one, it replaces it.
func (c *Client) findLogin(ctx context.Context, h *Host, path string, known *login) error {
	isFound := func() bool { _, l := h.loginOf(path); return l != known }
	return h.once(ctx, "login "+path, isFound, func(ctx context.Context) error {
		found, err := c.opts.Credentials(ctx, h.name, path)
		if err != nil || known != nil && known.credential == found {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.logins[path] = &login{credential: found, tokens: map[string]token{}}
		h.keepSecret(found.Password, found.RefreshToken, found.AccessToken)
		if found.Password != "" {
			h.keepSecret(strings.TrimPrefix(basic(found), "Basic "))
		}
		return nil
	})
}

// canRepeat reports whether to repeat a request after a 401: a token has expired, or the host wants another login, or
// another login is found.
func (c *Client) canRepeat(ctx context.Context, h *Host, resp *http.Response, a Access) bool {
	sent := resp.Request.Header.Get("Authorization")
	h.mu.Lock()
	if ch := pickChallenge(resp.Header); ch.scheme != "" {
		h.challenge = ch
	}
	scope := strings.Join(a.scopes(), " ")
	ch, l := h.challenge, h.logins[a.Path]
	if l != nil && sent == "Bearer "+l.tokens[scope].text {
		delete(l.tokens, scope) // else another request has replaced it
	}
	h.mu.Unlock()
	if l == nil {
		return ch.scheme != ""
	}
	if header, isWhole := l.header(ch); !isWhole || header != sent {
		return true
	}
	err := c.findLogin(ctx, h, a.Path, l)
	_, other := h.loginOf(a.Path)
	return err == nil && other != l
}

// token returns the login's token for an access, or none.
func (l *login) token(h *Host, a Access) token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.tokens[strings.Join(a.scopes(), " ")]
}

// bearer makes sure that the login has a token for an access.
func (c *Client) bearer(ctx context.Context, h *Host, l *login, ch challenge, a Access) error {
	scope := strings.Join(a.scopes(), " ")
	isGood := func() bool { return time.Now().Before(l.token(h, a).until) }
	return h.once(ctx, "token "+a.Path+" "+scope, isGood, func(ctx context.Context) error {
		t, err := c.fetchToken(ctx, h, l.credential, ch, a.scopes())
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.keepToken(t.text)
			l.tokens[scope] = t
		}
		return err
	})
}

// fetchToken asks the token service that the host names: with POST for an identity token (OAuth 2), else with GET.
// The login goes to no other host.
func (c *Client) fetchToken(ctx context.Context, h *Host, with Credential, ch challenge, scopes []string) (t token, err error) {
	realm, err := c.realm(h, ch.params["realm"])
	if err != nil {
		return t, err
	}
	q := Request{Method: http.MethodGet, URL: realm}
	form, header := realm.Query(), ""
	if service := ch.params["service"]; service != "" {
		form.Set("service", service)
	}
	if with.RefreshToken == "" {
		form["scope"] = append(form["scope"], scopes...)
		realm.RawQuery = form.Encode()
		if with.Username != "" || with.Password != "" {
			header = basic(with)
		}
	} else {
		form = url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {with.RefreshToken}, "client_id": {c.opts.UserAgent},
			"service": {ch.params["service"]}, "scope": {strings.Join(scopes, " ")},
		}
		body := []byte(form.Encode())
		q.Method, q.Size, q.Private = http.MethodPost, int64(len(body)), true
		q.Header = map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
		q.Body = bodyOf(body)
	}
	resp, err := c.follow(ctx, h, q, realm.Host, func() (string, error) { return header, nil }) //nolint:bodyclose // Drain closes it
	if err != nil {
		return t, err
	}
	defer Drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err := h.answer(resp)
		if a, ok := errors.AsType[*AnswerError](err); ok {
			if a.login = with.String(); a.Status == http.StatusBadRequest && q.Method == http.MethodPost {
				a.Status = http.StatusUnauthorized // OAuth's answer to an invalid grant
			}
		}
		return t, err
	}
	data, err := ReadAll(resp.Body, maxToken)
	if err != nil {
		return t, err
	}
	return readToken(data)
}

// isUnauthorized reports whether an answer refused the login.
func isUnauthorized(err error) bool {
	var a *AnswerError
	return errors.As(err, &a) && a.Status == http.StatusUnauthorized
}

func readToken(data []byte) (t token, err error) {
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
	}
	if json.Unmarshal(data, &answer) != nil || answer.Token+answer.AccessToken == "" {
		return t, Refused("", errors.New("the token service's answer holds no token"))
	}
	life := tokenDefault
	if answer.ExpiresIn > 0 && answer.ExpiresIn < 1<<31 {
		life = time.Duration(answer.ExpiresIn) * time.Second
	}
	return token{cmp.Or(answer.AccessToken, answer.Token), time.Now().Add(life * 4 / 5)}, nil
}

// realm returns the URL of the token service if the client may send credentials to it.
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

// mayBePlain reports whether an address that the host names may be without TLS.
func (c *Client) mayBePlain(h *Host, address string) bool {
	return c.opts.Hosts[address].PlainHTTP || (h.base.Scheme == "http" && address == h.base.Host)
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}

// Refused returns a fault of the reason Refused: the server demands or does something that the client does not allow.
func Refused(hint string, err error) error {
	return &fault.Error{Reason: fault.Refused, Hint: hint, Err: err}
}

// challenge is a WWW-Authenticate header.
type challenge struct {
	scheme string // lower case; "" for none
	params map[string]string
}

// word matches a parameter of a challenge, a token or a quoted string, or else a scheme (RFC 9110, section 11.2).
var (
	word   = regexp.MustCompile(`([^\s,="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"?|([^\s,"]*))|[^\s,="]+`)
	quoted = regexp.MustCompile(`\\(.)`)
)

// parseChallenges reads a WWW-Authenticate header, which may name several schemes. It skips malformed parameters.
func parseChallenges(header string) (all []challenge) {
	for _, w := range word.FindAllStringSubmatch(header, -1) {
		if w[1] == "" {
			all = append(all, challenge{scheme: strings.ToLower(w[0]), params: map[string]string{}})
		} else if len(all) > 0 {
			all[len(all)-1].params[strings.ToLower(w[1])] = quoted.ReplaceAllString(w[2], "$1") + w[3]
		}
	}
	return all
}

// pickChallenge returns the challenge to answer: a token service before a password.
func pickChallenge(h http.Header) challenge {
	var picked challenge
	for _, c := range parseChallenges(strings.Join(h.Values("WWW-Authenticate"), ", ")) {
		if c.scheme == "bearer" || (c.scheme == "basic" && picked.scheme == "") {
			picked = c
		}
	}
	return picked
}
