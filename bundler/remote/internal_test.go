package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Explain is what a person is told of an error of the network.
func Explain(c *Client, host string, err error) error {
	return c.Explain(context.Background(), c.Host(host), "read", host, err)
}

func TestPodmanKeepsLoginsWithoutAFolderOfTheSession(t *testing.T) {
	none := func(string) string { return "" }
	require.Equal(t, []string{fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid())}, configFiles(none))
}

func TestParseChallenge(t *testing.T) {
	for header, want := range map[string][]challenge{
		`Bearer realm="https://a.b/token",service="registry, of \"us\"",scope="repository:a/b:pull,push"`: {{"bearer", map[string]string{
			"realm": "https://a.b/token", "service": `registry, of "us"`, "scope": "repository:a/b:pull,push",
		}}},
		`BASIC realm=x`:                    {{"basic", map[string]string{"realm": "x"}}},
		`Bearer realm = "a" , service = b`: {{"bearer", map[string]string{"realm": "a", "service": "b"}}},
		`Basic`:                            {{"basic", map[string]string{}}},
		``:                                 nil,
		`realm="x"`:                        nil,
		`Bearer realm="unclosed`:           {{"bearer", map[string]string{"realm": "unclosed"}}},
		`Bearer realm="a, Basic",service="s", Basic realm="b"`: {
			{"bearer", map[string]string{"realm": "a, Basic", "service": "s"}}, {"basic", map[string]string{"realm": "b"}},
		},
	} {
		require.Equal(t, want, parseChallenges(header), header)
	}
	picked := pickChallenge(http.Header{"Www-Authenticate": {"Negotiate", `Basic realm="a"`, `Bearer realm="b"`}})
	require.Equal(t, "bearer", picked.scheme)
}

// A token is not used to its end: the request that it is refused for might have a large body.
func TestATokenIsReplacedBeforeItExpires(t *testing.T) {
	for answer, want := range map[string]time.Duration{
		`{"token":"a","expires_in":100}`: 80 * time.Second, `{"access_token":"a"}`: 48 * time.Second,
		`{"token":"a","expires_in":-1}`: 48 * time.Second, `{"expires_in":9}`: 0, `nonsense`: 0,
	} {
		got, err := readToken([]byte(answer))
		if want == 0 {
			require.Error(t, err, answer)
			continue
		}
		require.NoError(t, err, answer)
		require.Equal(t, "a", got.text)
		require.WithinDuration(t, time.Now().Add(want), got.until, 5*time.Second, answer)
	}
}

func FuzzParseChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://a.b/token",service="x\"y",scope=z`)
	f.Add(`Basic ="`)
	f.Add(`a "\`)
	f.Fuzz(func(_ *testing.T, header string) { parseChallenges(header) })
}

func FuzzConfigCredentials(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://a.b/v1/":{"auth":"dTpw"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		find, err := ConfigCredentials("x", data)
		if (err == nil) != (find != nil) {
			t.Fatal("an answer and an error, or neither")
		}
	})
}

func TestRetryAfterReadsSecondsAndDates(t *testing.T) {
	after := func(s string) time.Duration {
		return parseRetryAfter(http.Header{"Retry-After": {s}, "Date": {"Mon, 02 Jan 2006 15:03:05 GMT"}})
	}
	require.Equal(t, 7*time.Second, after("7"))
	require.Zero(t, after("-7"))
	require.Zero(t, after("soon"))
	require.Zero(t, after("Mon, 02 Jan 2006 15:02:05 GMT"))
	require.Equal(t, time.Minute, after("Mon, 02 Jan 2006 15:04:05 GMT"))
}

// A name that a server leads to is looked at once more as the address that it stands for.
func TestAddressesAreLookedAtWhenTheyAreDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // nothing was written
	for _, none := range []bool{true, false} {
		c, err := NewClient(Options{NoLoopback: none})
		require.NoError(t, err)
		conn, err := c.transports[""].foreign.DialContext(t.Context(), "tcp", l.Addr().String())
		if none {
			require.ErrorIs(t, err, ErrThisMachine)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		_, err = c.transports[""].foreign.DialContext(t.Context(), "tcp", "169.254.169.254:80")
		require.ErrorIs(t, err, ErrLinkLocal)
	}
}

// Where a server may lead: a redirect or an upload, and a token service. What it names is
// refused before a proxy could be sent there.
func TestWhereAServerMayLead(t *testing.T) {
	const elsewhere, local, here = "not HTTPS", "link-local", "this machine"
	// Errors; here: that of a location where this machine is refused.
	for to, want := range map[string]struct{ location, realm, here string }{
		"https://registry.site/x":        {},
		"https://storage.site:8443/x":    {},
		"http://plain.site/x":            {},
		"http://registry.site/x":         {realm: elsewhere}, // registries behind a proxy do not know of TLS
		"http://other.site/x":            {location: elsewhere, realm: elsewhere},
		"ftp://registry.site/x":          {location: elsewhere, realm: elsewhere},
		"null://auth":                    {location: elsewhere, realm: elsewhere},
		"":                               {location: "not an address", realm: "not a URL"},
		"https://u:p@other.site/x":       {location: "not an address", realm: "holds a login"},
		"https://169.254.169.254/x":      {location: local, realm: local},
		"https://169.254.169.254./x":     {location: local, realm: local},
		"https://[fe80::1%25eth0]/x":     {location: local, realm: local},
		"https://[::ffff:169.254.1.1]/x": {location: local, realm: local},
		"https://0.0.0.0/x":              {location: local, realm: local},
		"https://127.0.0.1/x":            {realm: here, here: here},
		"https://127.1.2.3/x":            {realm: here, here: here},
		"https://[::1]/x":                {realm: here, here: here},
		"https://localhost/x":            {realm: here, here: here},
	} {
		for _, noLoopback := range []bool{false, true} {
			c, err := NewClient(Options{PlainHTTP: []string{"plain.site"}, NoLoopback: noLoopback})
			require.NoError(t, err)
			h := c.Host("registry.site")
			check := func(err error, want string) {
				if want == "" {
					require.NoError(t, err, to)
					return
				}
				require.Equal(t, fault.Refused, fault.ReasonOf(err), to)
				require.ErrorContains(t, err, want, to)
			}
			if noLoopback && want.location == "" {
				want.location = want.here
			}
			_, err = c.Location(h, h.base.JoinPath("/v2/"), &http.Response{Header: http.Header{"Location": {to}}})
			check(err, want.location)
			_, err = c.realm(h, to)
			check(err, want.realm)
		}
	}
	c, err := NewClient(Options{})
	require.NoError(t, err)
	h := c.Host("registry.site")
	answer := &http.Response{Header: http.Header{"Location": {"http://registry.site/x?y#z"}}}
	u, err := c.Location(h, h.base.JoinPath("/v2/"), answer)
	require.NoError(t, err)
	require.Equal(t, "https://registry.site/x?y", u.String())
}

// As long as a host keeps up, each success makes room for one more; slowly after it was too much.
func TestSlotsGrowAndShrinkAndGrowAgain(t *testing.T) {
	s := newSlots(6, 8)
	for _, want := range []int{7, 8, 8} {
		s.succeed()
		require.Equal(t, want, s.limit)
	}
	var held []func()
	for range 8 {
		release, err := s.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, release)
	}
	s.shrink()
	s.shrink()
	require.Equal(t, 2, s.limit)
	for _, release := range held[:6] {
		release()
	}
	require.Empty(t, s.free, "they are owed")
	held[6]()
	held[7]()
	require.Len(t, s.free, 2)
	for range 4 {
		require.Equal(t, 2, s.limit)
		s.succeed()
	}
	require.Equal(t, 3, s.limit)
	for range 1000 {
		s.succeed()
	}
	require.Equal(t, 8, s.limit)
}

// A host that cuts connections may have too many of them, once it has answered at all.
func TestACutConnectionMakesRoom(t *testing.T) {
	nap := func(context.Context, time.Duration) error { return nil }
	c, err := NewClient(Options{Concurrency: 6, Sleep: nap})
	require.NoError(t, err)
	h := c.Host("registry.test")
	for _, want := range []int{6, 3} {
		require.NoError(t, c.Wait(t.Context(), h, io.ErrUnexpectedEOF, 1))
		require.Equal(t, want, h.pull.limit)
		require.Equal(t, want, h.push.limit)
		h.pinged = true
	}
}

// One pause counts once, however many hear of it.
func TestOnePauseShrinksOnce(t *testing.T) {
	h := &Host{small: newSlots(12, 12), pull: newSlots(6, 6), push: newSlots(6, 6), pullSmall: newSlots(12, 12), pushSmall: newSlots(12, 12)}
	for range 5 {
		h.strained(time.Hour, true)
	}
	require.Equal(t, 6, h.small.limit)
	require.Equal(t, 3, h.pull.limit)
	require.Equal(t, 3, h.push.limit)
	until := h.strainedUntil
	h.strained(2*time.Hour, true)
	require.Equal(t, until, h.strainedUntil, "what is heard of meanwhile does not draw it out")
}

func TestALongPauseIsToldOnce(t *testing.T) {
	var told []time.Duration
	c, err := NewClient(Options{
		Sleep:  func(context.Context, time.Duration) error { return nil },
		Paused: func(_ string, pause time.Duration) { told = append(told, pause) },
	})
	require.NoError(t, err)
	h := c.Host("registry.test")
	for _, after := range []time.Duration{time.Second, time.Minute, time.Minute} {
		h.notBefore = time.Now().Add(-time.Second) // of an earlier pause
		for range 3 {
			throttled := &AnswerError{Status: http.StatusTooManyRequests, After: after}
			require.NoError(t, c.Wait(t.Context(), h, throttled, 1))
		}
	}
	require.Equal(t, []time.Duration{time.Minute, time.Minute}, told)
	h.notBefore = time.Now().Add(time.Second) // of a short pause, which is not told
	require.NoError(t, c.Wait(t.Context(), h, &AnswerError{Status: http.StatusTooManyRequests, After: time.Minute}, 1))
	require.Len(t, told, 3)
}

func TestAHelperTellsWhyItStoresNoLogin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for reason, want := range map[string]string{
		"pass not initialized": "pass not initialized: exit status 1", "cannot store canary": "registry.site: exit status 1",
	} {
		script := "#!/bin/sh\necho '" + reason + "'; exit 1"
		program := filepath.Join(dir, "docker-credential-pass")
		require.NoError(t, os.WriteFile(program, []byte(script), 0o700)) //nolint:gosec // a program
		err := helper("pass").put(t.Context(), "registry.site", Credential{Username: "u", Password: "canary"})
		require.Contains(t, err.Error(), want)
		require.NotContains(t, fault.Text(err), "canary")
		require.NotContains(t, fault.HintOf(err), "get`")
	}
}

func TestBackoffDoublesAndIsBounded(t *testing.T) {
	for n := 1; n < 40; n++ {
		d, whole := backoff(n), time.Minute
		if n < 8 {
			whole = min(firstWait<<(n-1), time.Minute)
		}
		require.GreaterOrEqual(t, d, whole/2)
		require.LessOrEqual(t, d, whole)
	}
}

// Of a path is shown what this package makes; not where a server leads, on its own host
// too: that may be a secret.
func TestOnlyOurOwnPathsAreShown(t *testing.T) {
	foreign := new(http.Transport)
	c := &Client{transports: map[string]transports{"": {foreign: foreign}}}
	for path, want := range map[string]string{
		"/v2/":                            "/v2/",
		"/v2/a/b/manifests/1.0":           "/v2/a/b/manifests/1.0",
		"/v2/a/b/blobs/uploads/":          "/v2/a/b/blobs/uploads/",
		"/v2/a/b/blobs/uploads/3f-secret": "/v2/a/b/blobs/uploads/…",
		"/x/blobs/uploads/secret":         "/…",
		"/_storage_proxy/secret/a/b":      "/…",
	} {
		require.Equal(t, want, c.shown(nil, path))
		require.Equal(t, "/…", c.shown(foreign, path))
	}
}

func TestUploadedReadsRanges(t *testing.T) {
	for header, want := range map[string]int64{
		"0-99": 100, "bytes=0-99": 100, "0-0": 0, "": -1, "1-99": -1, "0-": -1, "0--5": -1, "0-x": -1, "99": -1,
	} {
		got, ok := uploaded(header)
		if !ok {
			got = -1
		}
		require.Equal(t, want, got, header)
	}
}

func TestSpans(t *testing.T) {
	require.True(t, spans("bytes 5-9/10", 5, 10))
	require.True(t, spans("bytes 5-9/*", 5, 10))
	for _, h := range []string{"", "bytes", "bytes 5-9", "bytes 4-9/10", "bytes 5-8/10", "bytes 5-9/11", "items 5-9/10", "bytes */10", "bytes 05-9/10"} {
		require.False(t, spans(h, 5, 10), h)
	}
}

// An answer that is a fault by now, as one of the source, was tried again before.
func TestAnAnswerThatWasTriedAgainIsFinal(t *testing.T) {
	away := &AnswerError{Status: http.StatusServiceUnavailable}
	for err, want := range map[error]bool{
		away: true, fmt.Errorf("read: %w", away): true, &AnswerError{Status: http.StatusNotFound}: false,
		&fault.Error{Reason: fault.Unreachable, Err: away}: false,
	} {
		require.Equal(t, want, CanPass(err), "%T %v", err, err)
	}
}
