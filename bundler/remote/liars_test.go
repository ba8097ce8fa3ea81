package remote_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A success that a registry, or a proxy before it, gives and does not mean is found
// out before the push says that it is done; the next push mends it.
func TestPushAsksForWhatTheRegistryAccepted(t *testing.T) {
	source, _ := upstream(t)
	blobs, manifests := real.Match{Method: "PUT", Path: "/blobs/uploads/"}, real.Match{Method: "PUT", Path: "/manifests/"}
	for name, f := range map[string]real.Fault{
		"no blob":       {Match: blobs, Status: 201},
		"all but one":   {Match: blobs, After: 3, Times: 1, Status: 201},
		"a manifest":    {Match: manifests, Times: 1, Status: 201},
		"the tag":       {Match: real.Match{Method: "PUT", Path: "/manifests/1"}, Status: 201},
		"its signature": {Match: real.Match{Method: "PUT", Path: ".sig"}, Status: 201},
		"the referrer":  {Match: real.Match{Method: "PUT", Path: "/manifests/sha256:", Body: `"subject":`}, Status: 201},
	} {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, real.Options{Kind: real.Simple})
			mirror.Fail(f)
			c, _ := client(t, remote.Options{}, source, mirror)
			from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
			g := graph(t, from)
			g.Attachments = []bundle.Attachment{attachment(t, g.Root, true, "ours"), attachment(t, g.Root, false, "theirs")}
			wantFault(t, copyGraph(t.Context(), g, from, to), fault.Incomplete)
			mirror.Heal()
			require.NoError(t, copyGraph(t.Context(), g, from, to))
			for _, d := range g.Blobs {
				wantBlob(t, to, d)
			}
		})
	}
}

func TestMountThatTheRegistryDoesNotMeanIsFoundOut(t *testing.T) {
	source, _ := upstream(t)
	mirror := real.Start(t, real.Options{Kind: real.Simple})
	mirror.Fail(real.Fault{Match: real.Match{Method: "POST", Query: "mount="}, Status: 201})
	c, _ := client(t, remote.Options{}, source, mirror)
	g, to := graph(t, repository(c, source, "csi/driver:v1")), repository(c, mirror, "site/bundle:1")
	_, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	for _, d := range g.Blobs {
		done, err := to.Mount(t.Context(), d, image.MustReference(mirror.Host+"/other/driver:v1"))
		require.NoError(t, err)
		require.True(t, done, "the registry says so")
	}
	wantFault(t, to.Commit(t.Context()), fault.Incomplete)
}

func TestSignatureThatTheRegistryDoesNotKeepIsNotSigned(t *testing.T) {
	for name, match := range map[string]real.Match{
		"payload": {Method: "PUT", Path: "/blobs/uploads/"}, "tag": {Method: "PUT", Path: "/manifests/sha256-"}, "referrer": {Method: "PUT", Path: "/manifests/sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := real.Start(t, real.Options{Kind: real.Simple})
			_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
			reg.Fail(real.Fault{Match: match, Status: 201})
			c, _ := client(t, remote.Options{}, reg)
			repo := repository(c, reg, "csi/driver:v1")
			wantFault(t, repo.Attach(t.Context(), attachment(t, root, name != "referrer", "ours")), fault.Incomplete)
			reg.Heal()
			require.NoError(t, repo.Attach(t.Context(), attachment(t, root, name != "referrer", "ours")))
		})
	}
}

// That a blob is there is believed where its size is said, and else where it can be
// read.
func TestAnswersWithoutALengthAreNotBelieved(t *testing.T) {
	source, _ := upstream(t)
	for name, ranges := range map[string]bool{"with ranges": true, "without ranges": false} {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, real.Options{Kind: real.Simple})
			if !ranges {
				mirror.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/blobs/"}, IgnoreRange: true, ReplaceHeader: map[string]string{"Content-Length": ""}})
			}
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: mirror.Host})
			proxy.Transport = mirror.Transport()
			vague := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method != http.MethodHead || !strings.Contains(req.URL.Path, "/blobs/") {
					proxy.ServeHTTP(w, req)
					return
				}
				_ = http.NewResponseController(w).Flush() // 200 for everything
			}))
			defer vague.Close()
			at := strings.TrimPrefix(vague.URL, "http://")
			c, _ := client(t, remote.Options{PlainHTTP: []string{at}}, source, mirror)
			from, to := repository(c, source, "csi/driver:v1"), c.Repository(image.MustReference(at+"/site/bundle:1"))
			g := graph(t, from)
			missing, err := to.Begin(t.Context(), g)
			require.NoError(t, err)
			require.Equal(t, digests(g.Order()), digests(missing))
			require.NoError(t, copyGraph(t.Context(), g, from, to))
			for _, d := range g.Blobs {
				wantBlob(t, repository(c, mirror, "site/bundle:1"), d)
			}
			missing, err = to.Begin(t.Context(), g)
			require.NoError(t, err)
			require.Empty(t, missing)
		})
	}
}
