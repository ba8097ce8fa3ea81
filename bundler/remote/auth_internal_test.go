package remote

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestParseChallenge(t *testing.T) {
	for header, want := range map[string]challenge{
		`Bearer realm="https://a.b/token",service="registry, of \"us\"",scope="repository:a/b:pull,push"`: {"bearer", map[string]string{
			"realm": "https://a.b/token", "service": `registry, of "us"`, "scope": "repository:a/b:pull,push",
		}},
		`BASIC realm=x`:                    {"basic", map[string]string{"realm": "x"}},
		`Bearer realm = "a" , service = b`: {"bearer", map[string]string{"realm": "a", "service": "b"}},
		`Basic`:                            {"basic", map[string]string{}},
		``:                                 {"", map[string]string{}},
		`Bearer realm="unclosed`:           {"bearer", map[string]string{"realm": "unclosed"}},
	} {
		require.Equal(t, want, parseChallenge(header), header)
	}
	picked := pickChallenge(http.Header{"Www-Authenticate": {"Negotiate", `Basic realm="a"`, `Bearer realm="b"`}})
	require.Equal(t, "bearer", picked.scheme)
}

func FuzzParseChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://a.b/token",service="x\"y",scope=z`)
	f.Add(`Basic ="`)
	f.Add(`a "\`)
	f.Fuzz(func(_ *testing.T, header string) { parseChallenge(header) })
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
	require.Equal(t, 7*time.Second, parseRetryAfter("7"))
	require.Zero(t, parseRetryAfter("-7"))
	require.Zero(t, parseRetryAfter("soon"))
	require.Zero(t, parseRetryAfter("Mon, 02 Jan 2006 15:04:05 GMT"))
	later := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	require.InDelta(t, time.Hour.Seconds(), parseRetryAfter(later).Seconds(), 60)
}

// A credential helper that hangs, also in a program that it has started, or that
// answers without end, costs neither more time nor more memory than it may.
func TestHelpersHaveADeadlineAndABound(t *testing.T) {
	bin := t.TempDir()
	for name, text := range map[string]string{
		"hangs":   "sleep 30",
		"leaves":  `sleep 30 & echo '{"Username":"u","Secret":"canary"}'`,
		"endless": "while :; do echo canarycanarycanarycanary; done",
		"deaf":    "trap '' PIPE; while :; do echo canarycanarycanarycanary 2>/dev/null; done",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // a program
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, want := range map[string]string{
		"hangs": "it does not answer within 300ms", "endless": "its answer is too long", "deaf": "its answer is too long",
	} {
		within := time.Minute
		if name == "hangs" {
			within = 300 * time.Millisecond
		}
		_, err := helper{name: name, within: within}.Get(t.Context(), "a.site")
		require.Equal(t, fault.Unauthorized, fault.ReasonOf(err), name)
		require.ErrorContains(t, err, want)
		require.NotContains(t, fault.Text(err), "canary")
	}
	c, err := helper{name: "leaves", within: time.Minute}.Get(t.Context(), "a.site")
	require.NoError(t, err)
	require.Equal(t, Credential{Username: "u", Password: "canary"}, c)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = helper{name: "hangs", within: time.Hour}.Get(ctx, "a.site")
	require.ErrorIs(t, err, context.Canceled)
}

// A name that a server leads to is looked at once more as the address that it stands for.
func TestAddressesAreLookedAtWhenTheyAreDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // nothing was written
	for _, none := range []bool{true, false} {
		c, err := NewClient(Options{NoLoopback: none})
		require.NoError(t, err)
		conn, err := c.foreign.DialContext(t.Context(), "tcp", l.Addr().String())
		if none {
			require.ErrorIs(t, err, ErrThisMachine)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		_, err = c.foreign.DialContext(t.Context(), "tcp", "169.254.169.254:80")
		require.ErrorIs(t, err, ErrLinkLocal)
	}
}
