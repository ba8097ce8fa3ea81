package remote_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// tokenSite is a registry that lets in who has a token of another host of the site, at a
// private address.
type tokenSite struct {
	opts    remote.Options
	asked   atomic.Int64 // of the token service
	refused atomic.Int64 // requests to the registry with no token or an old one
	hold    chan struct{}
	held    chan struct{}
}

func newTokenSite(t *testing.T) *tokenSite {
	t.Helper()
	s := &tokenSite{}
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := s.asked.Add(1)
		if s.hold != nil && n == 1 {
			close(s.held)
			select {
			case <-s.hold:
			case <-req.Context().Done():
			}
		}
		_, _ = fmt.Fprintf(w, `{"token":"token-%d","expires_in":300}`, n)
	}))
	t.Cleanup(tokens.Close)
	reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != fmt.Sprintf("Bearer token-%d", s.asked.Load()) {
			if req.URL.Path != "/v2/" {
				s.refused.Add(1)
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://tokens.site/auth",service="the registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"tags":["a"]}`)
	}))
	t.Cleanup(reg.Close)
	to := map[string]string{
		"registry.site:80": reg.Listener.Addr().String(), "tokens.site:80": tokens.Listener.Addr().String(),
	}
	s.opts = remote.Options{
		PlainHTTP: []string{"registry.site", "tokens.site"}, Attempts: 1,
		Credentials: always("u", "p"),
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if to[address] == "" {
				return nil, errors.New("no such host")
			}
			return new(net.Dialer).DialContext(ctx, network, to[address])
		}},
	}
	return s
}

func (s *tokenSite) repository(t *testing.T) *remote.Repository {
	c, err := remote.NewClient(s.opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c.Repository(image.MustReference("registry.site/a/b"))
}

// A site's token service has another name than its registry and a private address. Many
// requests at once are served by one token, and none is sent to be refused.
func TestOneTokenOfAnotherHostServesAll(t *testing.T) {
	s := newTokenSite(t)
	repo := s.repository(t)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			tags, err := repo.Tags(t.Context())
			if err != nil || len(tags) != 1 {
				t.Error(tags, err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, s.asked.Load())
	require.Zero(t, s.refused.Load())
}

// Who gives up while everybody waits for a token ends no one else's request.
func TestWhoGivesUpWaitingForATokenEndsNobodyElsesRequest(t *testing.T) {
	s := newTokenSite(t)
	s.hold, s.held = make(chan struct{}), make(chan struct{})
	repo := s.repository(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := repo.Tags(ctx); first <- err }()
	<-s.held
	go func() { _, err := repo.Tags(t.Context()); second <- err }()
	time.Sleep(50 * time.Millisecond) // so that it waits for the same token
	cancel()
	require.Equal(t, fault.Interrupted, fault.ReasonOf(<-first))
	close(s.hold)
	require.NoError(t, <-second)
}

// hourly is a registry that wants a password, or a token for it, and takes only that of the current hour.
func hourly(
	t *testing.T, scheme string, o remote.Options,
) (c *remote.Client, host string, hour, refused *atomic.Int64) {
	t.Helper()
	hour, refused = new(atomic.Int64), new(atomic.Int64)
	c, host = serving(t, o, func(w http.ResponseWriter, req *http.Request) {
		_, password, sent := req.BasicAuth()
		isGood := password == fmt.Sprintf("hour-%d", hour.Load())
		if sent && !isGood {
			refused.Add(1)
		}
		switch {
		case scheme == "Bearer" && req.URL.Path == "/token" && isGood:
			_, _ = fmt.Fprintf(w, `{"token":"token-%d","expires_in":300}`, hour.Load())
		case scheme == "Basic" && isGood, req.Header.Get("Authorization") == fmt.Sprintf("Bearer token-%d", hour.Load()):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"tags":["a"]}`)
		default:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("%s realm=%q", scheme, "http://"+req.Host+"/token"))
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	return c, host, hour, refused
}

// Registries lock accounts: a wrong password is sent once, for any number of repositories and of requests at once, and
// so is one that becomes wrong, but for requests under way. A password of an hour, as helpers of clouds give it, is
// looked up again when it has expired.
func TestAWrongPasswordIsSentOnceAndAnExpiredOneIsLookedUpAgain(t *testing.T) {
	for _, scheme := range []string{"Basic", "Bearer"} {
		t.Run(scheme, func(t *testing.T) {
			c, host, _, refused := hourly(t, scheme, remote.Options{Credentials: always("u", "wrong")})
			var group sync.WaitGroup
			read := func(n int) {
				_, err := c.Repository(image.MustReference(fmt.Sprintf("%s/image%d:1", host, n))).Root(t.Context())
				isTold := strings.Contains(fault.Text(err), host+" refuses a request with the login of u: ")
				if fault.ReasonOf(err) != fault.Unauthorized || !isTold {
					t.Error(err)
				}
			}
			for n := range 5 {
				group.Go(func() { read(n) })
			}
			group.Wait()
			read(5)
			require.EqualValues(t, 1, refused.Load())

			var hour *atomic.Int64
			c, host, hour, refused = hourly(t, scheme, remote.Options{Credentials: always("u", "hour-0")})
			for n := range 5 { // each with a request while the password is right
				_, err := c.Repository(image.MustReference(fmt.Sprintf("%s/image%d:1", host, n))).Tags(t.Context())
				require.NoError(t, err)
			}
			hour.Add(1)
			for n := range 5 {
				read(n)
			}
			most := map[string]int{"Basic": 2, "Bearer": 1}[scheme] // a request and the check, or the token's
			require.EqualValues(t, most, refused.Load(), "a password that was right before")

			c, host, hour, refused = hourly(t, scheme, remote.Options{
				Credentials: func(context.Context, string, string) (remote.Credential, error) {
					return remote.Credential{Username: "u", Password: fmt.Sprintf("hour-%d", hour.Load())}, nil
				},
			})
			repo := c.Repository(image.MustReference(host + "/a:1"))
			for range 3 {
				_, err := repo.Tags(t.Context())
				require.NoError(t, err)
				hour.Add(1)
			}
			require.EqualValues(t, 2, refused.Load(), "one for each hour that ended")
		})
	}
	c, host, _, refused := hourly(t, "Basic", remote.Options{})
	_, _, err := c.Login(t.Context(), host, remote.Credential{Username: "u", Password: "wrong"}, t.TempDir()+"/config.json")
	wantFault(t, err, fault.Unauthorized)
	require.EqualValues(t, 1, refused.Load())

	sent := 0
	o := remote.Options{Credentials: always("u", "wrong")}
	c, host = serving(t, o, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/v2/" {
			return // open to all, and with any password
		}
		if _, _, ok := req.BasicAuth(); ok {
			sent++
		}
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	})
	for n := range 5 {
		_, err := c.Repository(image.MustReference(fmt.Sprintf("%s/image%d:1", host, n))).Root(t.Context())
		wantFault(t, err, fault.Unauthorized)
	}
	require.Equal(t, 1, sent, "a host that checks passwords in its repositories only")
}

// A host may ask for a password at /v2/ and for a token in its repositories, and may change
// its mind while it is spoken to: what it asked for last is what it gets.
func TestTheSchemeIsWhatTheHostAskedForLast(t *testing.T) {
	var bearer, tokens atomic.Int64
	wants := func(w http.ResponseWriter, req *http.Request, scheme string) bool {
		if sent, _, _ := strings.Cut(req.Header.Get("Authorization"), " "); sent == scheme {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("%s realm=%q", scheme, "http://"+req.Host+"/token"))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	o := remote.Options{Credentials: always("u", "password")}
	c, host := serving(t, o, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			_, _ = fmt.Fprintf(w, `{"token":"token-%d"}`, tokens.Add(1))
		case req.URL.Path == "/v2/":
			wants(w, req, "Basic")
		case bearer.Load() == 1 && wants(w, req, "Bearer"), bearer.Load() == 0 && wants(w, req, "Basic"):
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"tags": []string{"a"}})
		}
	})
	reads := func(path string) {
		tags, err := c.Repository(image.MustReference(host + path)).Tags(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, tags)
	}
	bearer.Store(1)
	reads("/a/b") // password at /v2/, token here
	reads("/a/b")
	reads("/a/c")
	require.EqualValues(t, 2, tokens.Load(), "one for each repository")
	bearer.Store(0)
	reads("/a/b") // from token to password
	bearer.Store(1)
	reads("/a/b") // and back
}

// echoing is a registry that tells in its refusal what it was sent, and the password; each
// of its tokens can be used once.
func echoing(t *testing.T, password string, token func(n int64) string) *remote.Repository {
	t.Helper()
	var tokens atomic.Int64
	var used atomic.Bool
	o := remote.Options{Attempts: 1, Credentials: always("u", password)}
	c, host := serving(t, o, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			answer := map[string]any{"token": token(tokens.Add(1)), "access_token": token(-tokens.Load())}
			_ = json.NewEncoder(w).Encode(answer)
			used.Store(false)
		case !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer "), used.Swap(true):
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", "http://"+req.Host+"/token"))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
			sent := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
			text := fmt.Sprintf("%s may not, with %s, said at http://registry.site", password, sent)
			said := []map[string]string{{"code": password, "message": text}}
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": said})
		}
	})
	return c.Repository(image.MustReference(host + "/a/b"))
}

// However many tokens a host has given meanwhile, and however long they are: no message
// holds the password, nor the beginning of a token.
func TestNoMessageHoldsASecretAfterManyTokens(t *testing.T) {
	repo := echoing(t, "hunter2", func(n int64) string {
		return fmt.Sprintf("canary-%d-%s", n, strings.Repeat("x", 300))
	})
	for i := range 80 {
		_, err := repo.Tags(t.Context())
		wantFault(t, err, fault.Forbidden, "*** may not, with ***")
		require.NotContains(t, fault.Text(err), "hunter2", "after %d tokens", i)
		require.NotContains(t, fault.Text(err), "canary", "after %d tokens", i)
	}
}

// A password of a few letters is in every text, and taking it out would tell it.
func TestMessagesAreReadableWithAShortPassword(t *testing.T) {
	repo := echoing(t, "p", func(int64) string { return "token" })
	_, err := repo.Tags(t.Context())
	wantFault(t, err, fault.Forbidden, "said at http://registry.site", "with ***")
}

// A hostile registry says back what it was told, in every way that it has.
func TestSecretsAreNotInMessages(t *testing.T) {
	const user, canary, query = "vdo", "canary-7d1f", "signature-of-the-url"
	secrets := []string{canary, base64.StdEncoding.EncodeToString([]byte(user + ":" + canary)), query}
	echo := func(status int, challenge string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/token" {
				_, _ = io.WriteString(w, `{"token":"`+canary+`"}`)
				return
			}
			if req.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", strings.ReplaceAll(challenge, "HOST", req.Host))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(status)
			said := req.Header.Get("Authorization") + " " + canary
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, canary, said)
		}
	}
	answers := map[string]http.HandlerFunc{
		"token": echo(403, `Bearer realm="http://HOST/token?sig=`+query+`",service="`+canary+`"`),
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			if req.URL.RawQuery == "" {
				w.Header().Set("Location", req.URL.Path+"?sig="+query)
				w.WriteHeader(http.StatusTemporaryRedirect)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		},
	}
	for _, status := range []int{400, 401, 403, 404, 429, 500} {
		answers[fmt.Sprint(status)] = echo(status, `Basic realm="x"`)
	}
	d, open := randomBlob(1)
	for name, answer := range answers {
		c, host := serving(t, remote.Options{Attempts: 2, Credentials: always(user, canary)}, answer)
		repo := c.Repository(image.MustReference(host + "/a/b:1"))
		_, resolveErr := repo.Root(t.Context())
		_, fetchErr := repo.Fetch(t.Context(), d, 0)
		for _, err := range []error{resolveErr, fetchErr, repo.Put(t.Context(), d, open)} {
			require.Error(t, err, name)
			for _, s := range secrets {
				require.NotContains(t, fmt.Sprintf("%v %+v %s", err, err, fault.Text(err)), s, name)
			}
		}
	}
}
