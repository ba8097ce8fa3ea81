package remote_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestEachAnswerHasItsReasonAndRemedy(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
	images.Push(t, reg, "csi/driver:v1", images.Spec{})
	for _, c := range []struct {
		status int
		body   string
		reason fault.Reason
		hint   string
	}{
		{401, "", fault.Unauthorized, "vdo-bundle login " + reg.Host + " -u USER"},
		{403, "", fault.Forbidden, "vdo-bundle login " + reg.Host + " -u USER"},
		{404, "", fault.NotFound, "check the name"},
		{405, "", fault.Refused, "read-only"},
		{413, "<html>", fault.Refused, "client_max_body_size"},
		{429, "", fault.Throttled, "--concurrency"},
		{500, "", fault.Unreachable, "logs of " + reg.Host},
		{503, "", fault.Unreachable, "logs of " + reg.Host},
		{507, "", fault.Refused, "free space"},
		{418, "", fault.Refused, "logs"},
		{400, `{"errors":[{"code":"DIGEST_INVALID"}]}`, fault.Corrupt, "pull or verify"},
		{404, `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}`, fault.Incomplete, "push it again"},
	} {
		t.Run(fmt.Sprint(c.status, c.reason), func(t *testing.T) {
			reg.Heal()
			cl, _ := client(t, remote.Options{Attempts: 2}, reg)
			repo := repository(cl, reg, "csi/driver:v1")
			_, err := repo.Root(t.Context())
			require.NoError(t, err)
			reg.Fail(real.Fault{Match: real.Match{Path: "/uploads/"}, Status: c.status, Body: c.body})
			reg.Fail(real.Fault{Match: real.Match{Method: "PUT"}, Status: c.status, Body: c.body})
			data := []byte("a blob")
			d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest(data), Size: int64(len(data))}
			put := func(m real.Match) error {
				reg.Heal()
				reg.Fail(real.Fault{Match: m, Status: c.status, Body: c.body})
				return repo.Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
			}
			wantFault(t, put(real.Match{Method: "PUT"}), c.reason, "push "+reg.Host+"/csi/driver@"+d.Digest.String(), c.hint)
			if c.reason != fault.Incomplete {
				wantFault(t, put(real.Match{Method: "POST"}), c.reason, "push "+reg.Host, c.hint)
			}
		})
	}
}

func TestBodyLimitAndReadOnly(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 3<<20)
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest(data), Size: int64(len(data))}
	open := func(int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }

	// Behind a proxy that takes nothing of the size.
	limited := real.Start(t, real.Options{})
	limited.Fail(real.Fault{Match: real.Match{Path: "/blobs/uploads/"}, BodyLimit: 1000})
	c, _ := client(t, remote.Options{Attempts: 3}, limited)
	err := repository(c, limited, "a/b:1").Put(t.Context(), d, open)
	// A server that refuses early may cut the connection under the client's writes.
	require.Contains(t, []fault.Reason{fault.Refused, fault.Unreachable}, fault.ReasonOf(err), fault.Text(err))

	readOnly := real.Start(t, real.Options{ReadOnly: true})
	c, _ = client(t, remote.Options{}, readOnly)
	wantFault(t, repository(c, readOnly, "a/b:1").Put(t.Context(), d, open), fault.Refused, "read-only")
}

func TestLongRetryAfterIsToldNotWaitedFor(t *testing.T) {
	reg, _ := upstream(t)
	c, n := client(t, remote.Options{}, reg)
	reg.Fail(real.Fault{Status: 429, Header: map[string]string{"Retry-After": "3600"}})
	_, err := repository(c, reg, "csi/driver:v1").Root(t.Context())
	wantFault(t, err, fault.Throttled, "try again in 1h0m0s")
	require.Empty(t, n.all())
}

func TestWrongLogin(t *testing.T) {
	for _, auth := range []real.Auth{real.Basic, real.Token} {
		reg := real.Start(t, real.Options{TLS: true, Auth: auth})
		for name, login := range map[string]remote.Credential{
			"none": {}, "wrong password": {Username: reg.Username, Password: "other"}, "identity token": {RefreshToken: "gone"},
		} {
			t.Run(name, func(t *testing.T) {
				c, _ := client(t, remote.Options{Credentials: func(context.Context, string, string) (remote.Credential, error) { return login, nil }}, reg)
				_, err := repository(c, reg, "csi/driver:v1").Root(t.Context())
				if auth == real.Token && name == "identity token" {
					require.Contains(t, []fault.Reason{fault.Unauthorized, fault.Refused, fault.NotFound}, fault.ReasonOf(err))
					return
				}
				wantFault(t, err, fault.Unauthorized, "vdo-bundle login "+reg.Host, "resolve "+reg.Host+"/csi/driver:v1")
			})
		}
	}
}

func TestLoginThatMayOnlyPull(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token, PullOnly: true})
	c, _ := client(t, remote.Options{}, reg)
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest([]byte("x")), Size: 1}
	err := repository(c, reg, "a/b:1").Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil })
	wantFault(t, err, fault.Forbidden, "ask the registry's administrator")
}

// A registry behind a proxy that ends TLS answers with its own idea of a scheme.
func TestUploadLocationOfTheSameHostUnderHTTP(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
	reg.Fail(real.Fault{Match: real.Match{Method: "POST"}, LocationBase: "http://" + reg.Host})
	c, _ := client(t, remote.Options{}, reg)
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest([]byte("x")), Size: 1}
	require.NoError(t, repository(c, reg, "a/b:1").Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }))
}

func TestCertificatesAndSchemes(t *testing.T) {
	secure, plain := real.Start(t, real.Options{TLS: true}), real.Start(t, real.Options{})
	resolve := func(o remote.Options, host string) error {
		o.Sleep = (&naps{}).sleep
		o.Credentials = func(context.Context, string, string) (remote.Credential, error) { return remote.Credential{}, nil }
		c, err := remote.NewClient(o)
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // idle connections only
		_, err = c.Repository(image.MustReference(host + "/a/b:1")).Root(t.Context())
		return err
	}
	wantFault(t, resolve(remote.Options{}, secure.Host), fault.CertificateInvalid, "--ca-file", secure.Host)
	wantFault(t, resolve(remote.Options{CAFile: secure.CAFile(t)}, secure.Host), fault.NotFound)
	wantFault(t, resolve(remote.Options{CA: plain.CA()}, secure.Host), fault.CertificateInvalid, "--ca-file")
	_, port, err := net.SplitHostPort(secure.Host)
	require.NoError(t, err)
	wantFault(t, resolve(remote.Options{CA: secure.CA()}, "127.0.0.2:"+port), fault.Unreachable, "refused")

	wantFault(t, resolve(remote.Options{}, plain.Host), fault.InvalidInput, "--plain-http "+plain.Host)
	wantFault(t, resolve(remote.Options{PlainHTTP: []string{plain.Host}}, plain.Host), fault.NotFound)
	wantFault(t, resolve(remote.Options{PlainHTTP: []string{secure.Host}}, secure.Host), fault.InvalidInput, "leave out --plain-http "+secure.Host)
	wantFault(t, resolve(remote.Options{}, "registry.invalid"), fault.Unreachable, "DNS")
}

func TestNameThatTheCertificateIsNotFor(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	der := server.Certificate().Raw
	pem := []byte("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(der) + "\n-----END CERTIFICATE-----\n")
	c, err := remote.NewClient(remote.Options{CA: pem, Sleep: (&naps{}).sleep})
	require.NoError(t, err)
	_, err = c.Repository(image.MustReference("localhost:" + port + "/a/b:1")).Root(t.Context())
	wantFault(t, err, fault.CertificateInvalid, "use a name that the certificate")
}

func TestBadOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	for _, o := range []remote.Options{
		{CAFile: file}, {CA: []byte("x")}, {PlainHTTP: []string{"http://a.b"}}, {PlainHTTP: []string{"a.b/c"}}, {PlainHTTP: []string{""}},
	} {
		_, err := remote.NewClient(o)
		wantFault(t, err, fault.InvalidInput)
	}
	_, err := remote.NewClient(remote.Options{CAFile: file + ".absent"})
	wantFault(t, err, fault.NotFound, "ca.crt.absent")
}

func TestTamperedContentIsCorrupt(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	g := graph(t, repo)
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, Tamper: true, TamperAt: 7})
	_, err := repo.Manifest(t.Context(), root)
	wantFault(t, err, fault.Corrupt, root.Digest.String())
	_, err = repo.Fetch(t.Context(), root)
	wantFault(t, err, fault.Corrupt)

	reg.Heal()
	reg.Fail(real.Fault{Match: real.Match{Method: "HEAD"}, Status: 405})
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, Tamper: true, TamperAt: 7})
	_, err = repo.Root(t.Context())
	wantFault(t, err, fault.Corrupt, "the registry says "+root.Digest.String())

	reg.Heal()
	reg.Fail(real.Fault{Match: real.Match{Method: "HEAD"}, ReplaceHeader: map[string]string{"Docker-Content-Digest": "sha256:" + strings.Repeat("0", 64)}})
	_, err = repository(c, reg, "csi/driver@"+root.Digest.String()).Root(t.Context())
	wantFault(t, err, fault.Corrupt)

	reg.Heal() // a blob that is shorter, and one that is longer, than its descriptor says
	for _, delta := range []int64{-10, 10} {
		d := largest(g)
		d.Size += delta
		_, err := readBlob(repo, d, 0)
		wantFault(t, err, fault.Corrupt, "bytes")
	}
}

func TestResolveWorksWithoutHEAD(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	for _, f := range []real.Fault{
		{Match: real.Match{Method: "HEAD"}, Status: 405},
		{Match: real.Match{Method: "HEAD"}, ReplaceHeader: map[string]string{"Docker-Content-Digest": ""}},
	} {
		reg.Heal()
		reg.Fail(f)
		d, err := repository(c, reg, "csi/driver:v1").Root(t.Context())
		require.NoError(t, err)
		require.Equal(t, root.Digest, d.Digest)
		require.Equal(t, root.Size, d.Size)
		require.Equal(t, root.MediaType, d.MediaType)
	}
}

func TestNoCredentialsForOtherHosts(t *testing.T) {
	for _, auth := range []real.Auth{real.Basic, real.Token} {
		reg := real.Start(t, real.Options{TLS: true, Auth: auth})
		images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 3, Layers: []int64{900_000}})
		store := reg.Storage(t)
		c, _ := client(t, remote.Options{}, reg)
		repo := repository(c, reg, "csi/driver:v1")
		g := graph(t, repo)
		d := largest(g)

		reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/blobs/sha256:"}, RedirectTo: store.URL()})
		store.Fail(real.Fault{Match: real.Match{Method: "GET"}, Times: 1, Cut: 500_000})
		data, err := readBlob(repo, d, 0)
		require.NoError(t, err)
		require.Equal(t, d.Digest.String(), hashOf(data))
		require.Equal(t, 2, store.Count("GET", "/blobs/"), "read in two parts from the other host")

		reg.Heal()
		reg.Fail(real.Fault{Match: real.Match{Method: "POST"}, LocationBase: store.URL()})
		to := repository(c, reg, "site/copy:1")
		require.NoError(t, copyGraph(t.Context(), g, repo, to))
		require.Equal(t, len(g.Blobs), store.Count("PUT", "/blobs/uploads/"))
		for _, q := range store.Requests() {
			require.False(t, q.Authorization, "%s %s", q.Method, q.Path)
		}
	}
}

func TestRedirectsThatAreRefused(t *testing.T) {
	reg, plain := real.Start(t, real.Options{TLS: true}), real.Start(t, real.Options{})
	_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
	images.Push(t, plain, "csi/driver:v1", images.Spec{})
	for target, text := range map[string]string{
		plain.URL():               "not HTTPS",
		"ftp://" + reg.Host:       "not HTTPS",
		"https://u:p@" + reg.Host: "not an address",
		"https://169.254.169.254": "link-local",
		"https://[fe80::1]":       "link-local",
		"https://0.0.0.0":         "link-local",
		reg.URL():                 "without end",
	} {
		reg.Heal()
		c, _ := client(t, remote.Options{}, reg)
		reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, RedirectTo: target})
		_, err := repository(c, reg, "csi/driver:v1").Manifest(t.Context(), root)
		wantFaultText(t, err, fault.Refused, text)
	}
}

func wantFaultText(t *testing.T, err error, reason fault.Reason, text string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, reason, fault.ReasonOf(err), "%s", fault.Text(err))
	require.Contains(t, fault.Text(err), text)
}

func TestTokenServicesThatAreRefused(t *testing.T) {
	for realm, text := range map[string]string{
		"null://auth":                    "not HTTPS",
		"":                               "not a URL",
		"http://auth.site/token":         "not HTTPS",
		"https://user:pass@auth.site/":   "holds a login",
		"https://169.254.169.254/latest": "link-local",
	} {
		reg := real.Start(t, real.Options{TLS: true})
		reg.Fail(real.Fault{Status: 401, Header: map[string]string{"WWW-Authenticate": fmt.Sprintf("Bearer realm=%q,service=x", realm)}})
		c, _ := client(t, remote.Options{Credentials: func(context.Context, string, string) (remote.Credential, error) {
			return remote.Credential{Username: "u", Password: "p"}, nil
		}}, reg)
		_, err := repository(c, reg, "a/b:1").Root(t.Context())
		wantFaultText(t, err, fault.Refused, text)
	}
}

// A hostile registry says back what it was told, in every way that it has.
func TestSecretsAreNotInMessages(t *testing.T) {
	const user, canary = "vdo", "canary-7d1f"
	secrets := []string{canary, base64.StdEncoding.EncodeToString([]byte(user + ":" + canary)), "signature-of-the-url"}
	var answer func(w http.ResponseWriter, req *http.Request)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { answer(w, req) }))
	defer server.Close()
	host := server.Listener.Addr().String()
	pem := []byte("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(server.Certificate().Raw) + "\n-----END CERTIFICATE-----\n")
	echo := func(status int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, canary, req.Header.Get("Authorization")+" "+canary)
		}
	}
	redirect := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery == "" {
			w.Header().Set("Location", req.URL.Path+"?sig=signature-of-the-url")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}
	token := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/token" {
			_, _ = io.WriteString(w, `{"token":"`+canary+`"}`)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token?sig=signature-of-the-url",service="`+canary+`"`)
		echo(403)(w, req)
	}
	answers := map[string]func(http.ResponseWriter, *http.Request){"redirect": redirect, "token": token}
	for _, status := range []int{400, 401, 403, 404, 429, 500} {
		answers[fmt.Sprint(status)] = echo(status)
	}
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest([]byte("x")), Size: 1}
	for name, a := range answers {
		answer = a
		c, err := remote.NewClient(remote.Options{CA: pem, Attempts: 2, Sleep: (&naps{}).sleep,
			Credentials: func(context.Context, string, string) (remote.Credential, error) {
				return remote.Credential{Username: user, Password: canary}, nil
			}})
		require.NoError(t, err)
		repo := c.Repository(image.MustReference(host + "/a/b:1"))
		_, resolveErr := repo.Root(t.Context())
		_, fetchErr := repo.Fetch(t.Context(), d)
		putErr := repo.Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil })
		for _, err := range []error{resolveErr, fetchErr, putErr} {
			require.Error(t, err, name)
			for _, s := range secrets {
				require.NotContains(t, fmt.Sprintf("%v %+v %s", err, err, fault.Text(err)), s, name)
			}
		}
		require.NoError(t, c.Close())
	}
}

func TestHugeAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/v2/" {
			return
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		block := bytes.Repeat([]byte(" "), 1<<20)
		for range 64 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	host := server.Listener.Addr().String()
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}, Sleep: (&naps{}).sleep})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	repo := c.Repository(image.MustReference(host + "/a/b:1"))
	_, err = repo.Root(t.Context())
	wantFault(t, err, fault.Corrupt, "longer than allowed")
}

func TestStallInTheMiddleOfABlobIsResumed(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	gate := make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/blobs/") {
			return
		}
		select {
		case <-first:
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:123_456])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-gate:
			case <-req.Context().Done():
			}
		default:
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
		}
	}))
	defer server.Close()
	defer close(gate)
	host := server.Listener.Addr().String()
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}, Stall: 200 * time.Millisecond, Sleep: (&naps{}).sleep})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest(data), Size: int64(len(data))}
	got, err := readBlob(c.Repository(image.MustReference(host+"/a/b:1")), d, 0)
	require.NoError(t, err)
	require.Equal(t, d.Digest.String(), hashOf(got))
}

// A host that drips is as good as silent: each byte begins its patience anew, and a blob
// of some megabytes would take weeks.
func TestHostThatDripsIsGivenUp(t *testing.T) {
	gone := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/v2/" {
			return
		}
		w.Header().Set("Content-Length", "1000000")
		for req.Context().Err() == nil {
			if _, err := w.Write([]byte{1}); err != nil || http.NewResponseController(w).Flush() != nil {
				break
			}
			select {
			case <-req.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		gone <- struct{}{}
	}))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{at}, Attempts: 1, Stall: 2 * time.Second})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	d, _ := randomBlob(1_000_000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rc, err := c.Repository(image.MustReference(at+"/a/b:1")).Fetch(ctx, d)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, rc)
	wantFault(t, err, fault.Unreachable, "64 bytes a second")
	require.NoError(t, rc.Close())
	<-gone
}

// What comes in the place of a manifest says where the fault is: not in the storage.
func TestWhatIsNoManifestIsNamed(t *testing.T) {
	reg, root := upstream(t)
	data, err := repository(mustClient(t, reg), reg, "csi/driver:v1").Manifest(t.Context(), root)
	require.NoError(t, err)
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, err = zw.Write(data)
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	page := "<!DOCTYPE html><html><body>" + strings.Repeat("Please log in. ", 500) + "</body></html>"
	for name, c := range map[string]struct {
		fault real.Fault
		says  string
	}{
		"page":             {real.Fault{Status: 200, Body: page, Header: map[string]string{"Content-Type": "text/html; charset=utf-8"}}, "proxy (HTTPS_PROXY"},
		"page, no type":    {real.Fault{Status: 200, Body: "\n" + page, Header: map[string]string{"Content-Type": root.MediaType}}, "proxy (HTTPS_PROXY"},
		"gzip":             {real.Fault{Status: 200, Body: packed.String(), Header: map[string]string{"Content-Type": root.MediaType, "Content-Encoding": "gzip"}}, "gzip off"},
		"gzip, not marked": {real.Fault{Status: 200, Body: packed.String(), Header: map[string]string{"Content-Type": root.MediaType}}, "gzip off"},
	} {
		t.Run(name, func(t *testing.T) {
			reg.Heal()
			c.fault.Match = real.Match{Path: "/manifests/"}
			reg.Fail(c.fault)
			repo := repository(mustClient(t, reg), reg, "csi/driver:v1")
			_, err := repo.Root(t.Context())
			wantFault(t, err, fault.Corrupt, c.says)
			require.NotContains(t, fault.Text(err), "storage")
			_, err = repo.Manifest(t.Context(), root)
			wantFault(t, err, fault.Corrupt, c.says)
			require.NotContains(t, fault.Text(err), "storage")
		})
	}
}

func mustClient(t *testing.T, reg *real.Registry) *remote.Client {
	t.Helper()
	c, _ := client(t, remote.Options{Attempts: 1}, reg)
	return c
}

// No more files may be open: that is no fault of the network, nor of a disk.
func TestTooManyOpenFilesAreNamed(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		c, err := remote.NewClient(remote.Options{Attempts: 1, Credentials: func(context.Context, string, string) (remote.Credential, error) {
			return remote.Credential{}, nil
		}})
		require.NoError(t, err)
		err = remote.Explain(c, "registry.site", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)})
		wantFault(t, err, fault.Storage, "ulimit -n")
		require.NotContains(t, fault.Text(err), "network to")
	}
}

// What is written is sent on as well, to another host without the login.
func TestRedirectsOfUploadsAndTokensAreFollowed(t *testing.T) {
	source, _ := upstream(t)
	for _, match := range []real.Match{
		{Method: "POST"}, {Method: "PATCH"}, {Method: "PUT", Path: "/blobs/"}, {Method: "PUT", Path: "/manifests/"}, {Path: "/auth/token"},
	} {
		t.Run(match.Method+match.Path, func(t *testing.T) {
			mirror := real.Start(t, real.Options{TLS: true, Auth: real.Token})
			c, _ := client(t, remote.Options{ChunkSize: 1000}, source, mirror)
			mirror.Fail(real.Fault{Match: match, Times: 1, RedirectTo: mirror.URL()})
			from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
			g := graph(t, from)
			require.NoError(t, copyGraph(t.Context(), g, from, to))
			lacks, err := to.Lacks(t.Context(), g.Order())
			require.NoError(t, err)
			require.Empty(t, lacks)
		})
	}
	mirror := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	store := mirror.Storage(t)
	c, _ := client(t, remote.Options{}, source, mirror)
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/blobs/"}, RedirectTo: store.URL()})
	from := repository(c, source, "csi/driver:v1")
	require.NoError(t, copyGraph(t.Context(), graph(t, from), from, repository(c, mirror, "site/bundle:1")))
	require.Positive(t, store.Count("PUT", "/blobs/"))
	for _, q := range store.Requests() {
		require.False(t, q.Authorization, "%s %s", q.Method, q.Path)
	}
}
