package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
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
		{403, `{"errors":[{"code":"DENIED","message":"it will exceed the configured upper limit of 10.0 GiB"}]}`, fault.Storage, "quota"},
		{413, `{"errors":[{"code":"DENIED","message":"Quota has been exceeded"}]}`, fault.Storage, "quota"},
		{429, "", fault.Throttled, "--concurrency"},
		{500, "", fault.Unreachable, "logs of " + reg.Host},
		{503, "", fault.Unreachable, "logs of " + reg.Host},
		{418, "", fault.Refused, "logs"},
		{400, "<title>400 No required SSL certificate was sent</title>", fault.CertificateInvalid, reg.Host + " asks for a certificate"},
		{400, "<title>400 The SSL certificate error</title>", fault.CertificateInvalid, "--client-cert"},
		{400, `{"errors":[{"code":"DIGEST_INVALID"}]}`, fault.Corrupt, "pull or verify"},
		{404, `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}`, fault.Incomplete, "push it again"},
	} {
		t.Run(fmt.Sprint(c.status, c.reason), func(t *testing.T) {
			reg.Heal()
			repo := at(t, remote.Options{Attempts: 2}, reg, "csi/driver:v1")
			_, err := repo.Root(t.Context())
			require.NoError(t, err)
			d, open := randomBlob(10)
			put := func(m real.Match) error {
				reg.Heal()
				reg.Fail(real.Fault{Match: m, Status: c.status, Body: c.body})
				return repo.Put(t.Context(), d, open)
			}
			wantFault(t, put(real.Match{Method: "PUT"}), c.reason, "push "+reg.Host+"/csi/driver@"+d.Digest.String(), c.hint)
			if c.reason == fault.NotFound {
				c.hint = "create the repository"
			}
			if c.reason != fault.Incomplete {
				wantFault(t, put(real.Match{Method: "POST"}), c.reason, "push "+reg.Host, c.hint)
			}
		})
	}
}

func TestLongRetryAfterIsToldNotWaitedFor(t *testing.T) {
	reg, _ := upstream(t)
	c, n := client(t, remote.Options{}, reg)
	reg.Fail(real.Fault{Status: 429, Header: map[string]string{"Retry-After": "3600"}})
	_, err := repository(c, reg, "csi/driver:v1").Root(t.Context())
	wantFault(t, err, fault.Throttled, "try again in 1h0m0s, as the server demands")
	require.Empty(t, n.all())
}

// Many who wait for a host that never answers are told so together.
func TestAHostBehindAFirewallHoldsUpAllForAsLongAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drops := func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(30 * time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		c, err := remote.NewClient(remote.Options{Transport: &http.Transport{DialContext: drops}})
		require.NoError(t, err)
		began := time.Now()
		var group sync.WaitGroup
		for n := range 25 {
			group.Go(func() {
				repo := c.Repository(image.MustReference(fmt.Sprintf("registry.site/a/%d", n)))
				_, err := repo.Tags(t.Context())
				wantFault(t, err, fault.Unreachable)
			})
		}
		group.Wait()
		require.Less(t, time.Since(began), 3*time.Minute)
	})
}

func TestCertificatesAndSchemes(t *testing.T) {
	secure, plain := real.Start(t, real.Options{TLS: true}), real.Start(t, real.Options{})
	resolve := func(o remote.Options, host string) error {
		o.Sleep = (&naps{}).sleep
		o.Credentials = always("", "")
		c, err := remote.NewClient(o)
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // idle connections only
		_, err = c.Repository(image.MustReference(host + "/a/b:1")).Root(t.Context())
		return err
	}
	wantFault(t, resolve(remote.Options{}, secure.Host), fault.CertificateInvalid, "--ca-file", secure.Host)
	both := []string{secure.CAFile(t), plain.CAFile(t)}
	wantFault(t, resolve(remote.Options{CAFiles: both}, secure.Host), fault.NotFound)
	wantFault(t, resolve(remote.Options{CA: plain.CA()}, secure.Host), fault.CertificateInvalid, "--ca-file")
	wantFault(t, resolve(remote.Options{SkipTLSVerify: []string{secure.Host}}, secure.Host), fault.NotFound)
	wantFault(t, resolve(remote.Options{SkipTLSVerify: []string{"other.site"}}, secure.Host), fault.CertificateInvalid)
	_, port, err := net.SplitHostPort(secure.Host)
	require.NoError(t, err)
	wantFault(t, resolve(remote.Options{CA: secure.CA()}, "127.0.0.2:"+port), fault.Unreachable, "refused")

	wantFault(t, resolve(remote.Options{}, plain.Host), fault.InvalidInput, "--plain-http "+plain.Host)
	wantFault(t, resolve(remote.Options{PlainHTTP: []string{plain.Host}}, plain.Host), fault.NotFound)
	wantFault(t, resolve(remote.Options{PlainHTTP: []string{secure.Host}}, secure.Host), fault.InvalidInput, "leave out --plain-http "+secure.Host)
	wantFault(t, resolve(remote.Options{}, "registry.invalid"), fault.Unreachable, "DNS")
}

func TestBadOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	for _, o := range []remote.Options{
		{CAFiles: []string{file}}, {CA: []byte("x")},
		{PlainHTTP: []string{"http://a.b"}}, {PlainHTTP: []string{"a.b/c"}}, {PlainHTTP: []string{""}},
		{SkipTLSVerify: []string{"https://a.b"}},
		{PlainHTTP: []string{"tsa"}}, // which references take for a path
	} {
		_, err := remote.NewClient(o)
		wantFault(t, err, fault.InvalidInput)
	}
	_, err := remote.NewClient(remote.Options{CAFiles: []string{file + ".absent"}})
	wantFault(t, err, fault.NotFound, "ca.crt.absent")
}

func TestTamperedContentIsCorrupt(t *testing.T) {
	reg, root, repo := driver(t, remote.Options{})
	g := graph(t, repo)
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, Tamper: true, TamperAt: 7})
	_, err := bundle.Read(t.Context(), repo, root, bundle.MaxManifestSize)
	wantFault(t, err, fault.Corrupt, root.Digest.String())

	reg.Heal()
	reg.Fail(real.Fault{Match: real.Match{Method: "HEAD"}, Status: 405})
	d, err := repo.Root(t.Context())
	require.NoError(t, err)
	require.Equal(t, bundle.Plain(root), d)
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, Tamper: true, TamperAt: 7})
	_, err = repo.Root(t.Context())
	wantFault(t, err, fault.Corrupt, "the registry says "+root.Digest.String())

	reg.Heal()
	reg.Fail(real.Fault{Match: real.Match{Method: "HEAD"}, ReplaceHeader: map[string]string{"Docker-Content-Digest": "sha256:" + strings.Repeat("0", 64)}})
	_, err = at(t, remote.Options{}, reg, "csi/driver@"+root.Digest.String()).Root(t.Context())
	wantFault(t, err, fault.Corrupt)

	reg.Heal() // a blob that is shorter, and one that is longer, than its descriptor says
	for _, delta := range []int64{-10, 10} {
		d := largest(g)
		d.Size += delta
		_, err := readBlob(repo, d, 0)
		wantFault(t, err, fault.Corrupt, "bytes")
	}
}

// Another host gets no login: the target of a redirect, of what is read and of what is
// written, and of an upload as a whole and in parts.
func TestNoCredentialsForOtherHosts(t *testing.T) {
	for _, auth := range []real.Auth{real.Basic, real.Token} {
		reg := real.Start(t, real.Options{TLS: true, Auth: auth})
		images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 3, Layers: []int64{900_000}})
		store := reg.Storage(t)
		for name, c := range map[string]struct {
			reg, store []real.Fault
			asked      real.Match // of the store
			times      int        // 0: once for each blob
		}{
			"read": {
				reg:   []real.Fault{{Match: real.Match{Method: "GET", Path: "/blobs/sha256:"}, RedirectTo: store.URL()}},
				store: []real.Fault{{Match: real.Match{Method: "GET"}, Cut: 500_000}},
				asked: real.Match{Method: "GET", Path: "/blobs/"}, times: 3, // two blobs, one of them in two parts
			},
			"redirect of an upload": {
				reg:   []real.Fault{{Match: real.Match{Method: "PUT", Path: "/blobs/"}, RedirectTo: store.URL()}},
				asked: real.Match{Method: "PUT", Path: "/blobs/uploads/"},
			},
			"upload": {
				reg:   []real.Fault{{Match: real.Match{Method: "POST"}, LocationBase: store.URL()}},
				asked: real.Match{Method: "PUT", Path: "/blobs/uploads/"},
			},
			"upload in parts": {
				reg:   []real.Fault{{Match: real.Match{Method: "POST"}, LocationBase: store.URL()}},
				store: []real.Fault{{Match: real.Match{Method: "PATCH"}, LocationBase: store.URL()}},
				asked: real.Match{Method: "PATCH"}, times: 3,
			},
		} {
			t.Run(name, func(t *testing.T) {
				o := remote.Options{}
				if name == "upload in parts" {
					o.ChunkSize = 400_000
				}
				cl, _ := client(t, o, reg)
				repo := repository(cl, reg, "csi/driver:v1")
				g := graph(t, repo)
				for _, f := range c.reg {
					reg.Fail(f)
				}
				for _, f := range c.store {
					store.Fail(f)
				}
				defer reg.Heal()
				defer store.Heal()
				store.ForgetRequests()
				to := repository(cl, reg, fmt.Sprintf("site/%x:1", sha256.Sum256([]byte(name))))
				require.NoError(t, copyGraph(t.Context(), g, repo, to))
				if c.times == 0 {
					c.times = len(g.Blobs)
				}
				require.Equal(t, c.times, store.Count(c.asked.Method, c.asked.Path))
				for _, q := range store.Requests() {
					require.False(t, q.Authorization, "%s %s", q.Method, q.Path)
				}
				for _, d := range g.Blobs {
					wantBlob(t, to, d)
				}
			})
		}
	}
}

func TestRedirectsThatAreRefused(t *testing.T) {
	reg, plain := real.Start(t, real.Options{TLS: true}), real.Start(t, real.Options{})
	_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
	images.Push(t, plain, "csi/driver:v1", images.Spec{})
	for target, text := range map[string]string{
		plain.URL():               "not HTTPS",
		"https://169.254.169.254": "link-local",
		reg.URL():                 "without end",
	} {
		reg.Heal()
		reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/"}, RedirectTo: target})
		_, err := at(t, remote.Options{}, reg, "csi/driver:v1").Fetch(t.Context(), root, 0)
		require.Equal(t, fault.Refused, fault.ReasonOf(err), "%v", err)
		require.ErrorContains(t, err, text)
	}
}

func TestHugeAnswersAreBounded(t *testing.T) {
	c, host := serving(t, remote.Options{}, func(w http.ResponseWriter, req *http.Request) {
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
	})
	_, err := c.Repository(image.MustReference(host + "/a/b:1")).Root(t.Context())
	wantFault(t, err, fault.Corrupt, "longer than allowed")
}

func TestStallInTheMiddleOfABlobIsResumed(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	var stalled atomic.Bool
	o := remote.Options{Stall: 200 * time.Millisecond}
	c, host := serving(t, o, func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/blobs/") && !stalled.Swap(true) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:123_456])
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
			return
		}
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	})
	d := ocispec.Descriptor{MediaType: "application/x", Digest: ocidigest(data), Size: int64(len(data))}
	wantBlob(t, c.Repository(image.MustReference(host+"/a/b:1")), d)
}

// What comes in the place of a manifest is called what it is.
func TestWhatIsNoManifestIsNamed(t *testing.T) {
	reg, _, repo := driver(t, remote.Options{Attempts: 1})
	page := real.Fault{Status: 200, Body: "<html>", Header: map[string]string{"Content-Type": "text/html; charset=utf-8"}}
	page.Match = real.Match{Path: "/manifests/"}
	reg.Fail(page)
	_, err := repo.Root(t.Context())
	wantFault(t, err, fault.Corrupt, `it is a "text/html"`, "a proxy or a portal")

	asked := 0 // by digest, and the page does not say how long it is
	c, host := serving(t, remote.Options{}, func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/manifests/") {
			asked++
		}
		_, _ = io.WriteString(w, "<html>")
		_ = http.NewResponseController(w).Flush()
	})
	d, _ := randomBlob(1000)
	d.MediaType = ocispec.MediaTypeImageManifest
	_, err = readBlob(c.Repository(image.MustReference(host+"/a/b:1")), d, 0)
	wantFault(t, err, fault.Corrupt, "fewer than the 1000 bytes", "a proxy or a portal")
	require.Equal(t, 1, asked)
}

// What there was instead of an answer has its own remedy: too many open files are no fault of the
// network, and a wrong name is none of the authority.
func TestErrorsOfTheNetworkHaveTheirRemedies(t *testing.T) {
	c, err := remote.NewClient(remote.Options{Attempts: 1, Credentials: always("", "")})
	require.NoError(t, err)
	expired := &tls.CertificateVerificationError{
		Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired},
	}
	err = remote.Explain(c, "registry.site", &net.OpError{Op: "proxyconnect", Err: expired})
	wantFault(t, err, fault.CertificateInvalid, "the certificate of the proxy renewed")
	unknown := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	err = remote.Explain(c, "registry.site", &net.OpError{Op: "proxyconnect", Err: unknown})
	require.Regexp(t, "that signed for the proxy$", fault.HintOf(err))
	immutable := &remote.AnswerError{Method: "PUT", Where: "https://registry.site/v2/a/manifests/1", Status: 412}
	wantFault(t, remote.Explain(c, "registry.site", immutable), fault.Refused, "immutable tags")
	other, err := remote.NewClient(remote.Options{
		PlainHTTP: []string{"registry.site"}, SkipTLSVerify: []string{"known.site:2"}})
	require.NoError(t, err)
	for host, hint := range map[string]string{
		"registry.site:5000": "; settings of registry.site do not apply to registry.site:5000$",
		"known.site:1":       "; settings of known.site:2 do not apply to known.site:1$",
		"known.site:2":       "answers in its place$",
	} {
		require.Regexp(t, hint, fault.HintOf(remote.Explain(other, host, unknown)))
	}
	plain := remote.Explain(other, "known.site:1", tls.RecordHeaderError{})
	wantFault(t, plain, fault.InvalidInput, "--plain-http known.site:1; settings of known.site:2")
	for hint, errs := range map[string]map[fault.Reason]error{
		"ulimit -n":                             {fault.Storage: os.NewSyscallError("socket", syscall.EMFILE)},
		"or do less at a time":                  {fault.Storage: os.NewSyscallError("socket", syscall.ENFILE)},
		"a name that is in the certificate":     {fault.CertificateInvalid: &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}},
		"correct this machine's clock":          {fault.CertificateInvalid: expired},
		"for a proxy that answers in its place": {fault.CertificateInvalid: unknown},
		"the port, DNS and the network to":      {fault.Unreachable: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	} {
		for reason, err := range errs {
			wantFault(t, remote.Explain(c, "registry.site", &net.OpError{Op: "dial", Err: err}), reason, hint)
		}
	}
}

// What is written is sent on as well, and so is what a token service is asked.
func TestRedirectsOfUploadsAndTokensAreFollowed(t *testing.T) {
	source, _ := upstream(t)
	for _, match := range []real.Match{
		{Method: "POST"}, {Method: "PATCH"}, {Method: "PUT", Path: "/blobs/"}, {Method: "PUT", Path: "/manifests/"}, {Path: "/auth/token"},
	} {
		t.Run(match.Method+match.Path, func(t *testing.T) {
			options := real.Options{TLS: true, Auth: real.Token}
			mirror, from, to, g := pushing(t, source, options, remote.Options{ChunkSize: 1000})
			mirror.Fail(real.Fault{Match: match, Times: 1, RedirectTo: mirror.URL()})
			require.NoError(t, copyGraph(t.Context(), g, from, to)) // which reads all of it back
		})
	}
}
