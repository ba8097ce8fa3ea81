package remote_test

import (
	"context"
	"errors"
	"fmt"
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
	expires int          // seconds
	hold    chan struct{}
	held    chan struct{}
}

func newTokenSite(t *testing.T) *tokenSite {
	t.Helper()
	s := &tokenSite{expires: 300}
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := s.asked.Add(1)
		if s.hold != nil && n == 1 {
			close(s.held)
			select {
			case <-s.hold:
			case <-req.Context().Done():
			}
		}
		_, _ = fmt.Fprintf(w, `{"token":"token-%d","expires_in":%d}`, n, s.expires)
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
	to := map[string]string{"registry.site:80": reg.Listener.Addr().String(), "tokens.site:80": tokens.Listener.Addr().String()}
	s.opts = remote.Options{
		PlainHTTP: []string{"registry.site", "tokens.site"}, Attempts: 1,
		Credentials: func(context.Context, string, string) (remote.Credential, error) {
			return remote.Credential{Username: "u", Password: "p"}, nil
		},
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
	t.Helper()
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

// A token that has expired is not sent: the request might have had a large body.
func TestATokenThatExpiresIsReplacedBeforeItIsRefused(t *testing.T) {
	s := newTokenSite(t)
	s.expires = 1
	repo := s.repository(t)
	_, err := repo.Tags(t.Context())
	require.NoError(t, err)
	time.Sleep(900 * time.Millisecond)
	_, err = repo.Tags(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.asked.Load())
	require.Zero(t, s.refused.Load())
}

// A token that the registry takes back is replaced once it was refused.
func TestATokenThatIsTakenBackIsReplaced(t *testing.T) {
	s := newTokenSite(t)
	repo := s.repository(t)
	_, err := repo.Tags(t.Context())
	require.NoError(t, err)
	s.asked.Add(1) // the registry wants another one from now on
	_, err = repo.Tags(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.refused.Load())
}

// Who gives up while everybody waits for a token ends nobody else's request.
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
	require.NoError(t, <-second)
	close(s.hold)
}

// Lists whose type has parameters are lists.
func TestReferrersWithATypeThatHasParametersAreListed(t *testing.T) {
	subject := image.DigestOf([]byte("subject"))
	reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json; charset=utf-8")
		_, _ = fmt.Fprintf(w, `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":7}]}`, subject)
	}))
	defer reg.Close()
	host := strings.TrimPrefix(reg.URL, "http://")
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	repo := c.Repository(image.MustReference(host + "/a/b"))
	list, err := repo.Referrers(t.Context(), "list", subject, repo.Pulls())
	require.NoError(t, err)
	require.Len(t, list, 1)
}
