package remote_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// A list of referrers is bounded in bytes over all its pages, and what it says beside the
// manifests is not kept: an annotation could pass for a tag.
func TestListsOfReferrersAreBoundedOverAllPages(t *testing.T) {
	const entry = `{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":2,"digest":%q,"artifactType":"a/b","data":"e30=","annotations":{"org.opencontainers.image.ref.name":"latest","x":%q}}`
	subject := image.DigestOf([]byte("subject"))
	var pages atomic.Int64
	var filler string
	c, host := serving(t, remote.Credential{}, func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		if n := pages.Add(1); filler != "" {
			w.Header().Set("Link", fmt.Sprintf(`<%s?page=%d>; rel="next"`, req.URL.Path, n))
		}
		_, _ = fmt.Fprintf(w, `{"schemaVersion":2,"manifests":[`+entry+`]}`, subject, filler)
	})
	repo := c.Repository(image.MustReference(host + "/a/b"))
	list, err := repo.Referrers(t.Context(), "list", subject, repo.Pulls())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "a/b", list[0].ArtifactType)
	require.Empty(t, list[0].Annotations)
	require.Empty(t, list[0].Data)

	pages.Store(0)
	filler = strings.Repeat("x", 3<<20)
	_, err = repo.Referrers(t.Context(), "list", subject, repo.Pulls())
	wantFault(t, err, fault.Corrupt, "longer than 8388608 bytes")
	require.EqualValues(t, 3, pages.Load())
}

// What somebody put under the tag of a list, and is none, is not replaced by one.
func TestWhatIsNoListOfReferrersIsNotReplaced(t *testing.T) {
	subject := image.DigestOf([]byte("subject"))
	manifest := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}`)
	var puts atomic.Int64
	c, host := serving(t, remote.Credential{}, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method == http.MethodPut:
			puts.Add(1)
		case strings.HasSuffix(req.URL.Path, "/manifests/sha256-"+subject.Hex()):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", image.DigestOf(manifest).String())
			_, _ = w.Write(manifest)
		case strings.Contains(req.URL.Path, "/referrers/"):
			w.WriteHeader(http.StatusNotFound)
		}
	})
	repo := c.Repository(image.MustReference(host + "/a/b"))
	_, err := repo.EnsureListed(t.Context(), "push", subject, bundle.Node{Data: manifest})
	wantFault(t, err, fault.Conflict, "no list of referrers")
	require.Zero(t, puts.Load())
}
