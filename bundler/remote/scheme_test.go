package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// serving returns a client of a registry that a function plays, with a login.
func serving(t *testing.T, login remote.Credential, answer http.HandlerFunc) (c *remote.Client, host string) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	host = s.Listener.Addr().String()
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}, Attempts: 1, Credentials: func(context.Context, string, string) (remote.Credential, error) {
		return login, nil
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, host
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
	c, host := serving(t, remote.Credential{Username: "u", Password: "password"}, func(w http.ResponseWriter, req *http.Request) {
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
		t.Helper()
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

// A token service at a link-local address is refused also where a proxy would go there, in
// whatever way the address is written.
func TestNoProxyIsSentToALinkLocalTokenService(t *testing.T) {
	for _, realm := range []string{"169.254.169.254", "169.254.169.254.", "[fe80::1%25eth0]", "[::ffff:169.254.169.254]"} {
		var asked atomic.Value
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodConnect {
				asked.Store(req.Host)
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", "https://"+realm+"/latest"))
			w.WriteHeader(http.StatusUnauthorized)
		}))
		defer proxy.Close()
		c, err := remote.NewClient(remote.Options{
			PlainHTTP: []string{"registry.site"}, Attempts: 1, Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }},
			Credentials: func(context.Context, string, string) (remote.Credential, error) {
				return remote.Credential{Username: "u", Password: "password"}, nil
			},
		})
		require.NoError(t, err)
		_, err = c.Repository(image.MustReference("registry.site/a/b")).Tags(t.Context())
		require.Nil(t, asked.Load(), realm)
		wantFault(t, err, fault.Refused, "link-local")
		require.NoError(t, c.Close())
	}
}

// A token service of this machine is refused where this machine is nobody's to lead to,
// though the registry is here too.
func TestATokenServiceOfThisMachineIsRefusedWhereThatIsSaid(t *testing.T) {
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"token":"token"}`)) }))
	defer tokens.Close()
	reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", tokens.URL))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer reg.Close()
	host := reg.Listener.Addr().String()
	c, err := remote.NewClient(remote.Options{
		PlainHTTP: []string{host, tokens.Listener.Addr().String()}, Attempts: 1, NoLoopback: true, Transport: &http.Transport{},
		Credentials: func(context.Context, string, string) (remote.Credential, error) { return remote.Credential{}, nil },
	})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	_, err = c.Repository(image.MustReference(host + "/a/b")).Tags(t.Context())
	wantFault(t, err, fault.Refused, "this machine")
}
