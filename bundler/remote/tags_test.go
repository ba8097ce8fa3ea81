package remote_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestTagsAreListedAndManifestsDeletedWithThem(t *testing.T) {
	source, _ := upstream(t)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, options)
			c, _ := client(t, remote.Options{}, source, mirror)
			from := repository(c, source, "csi/driver:v1")
			g := graph(t, from)
			for _, tag := range []string{"3", "1", "2"} {
				require.NoError(t, copyGraph(t.Context(), g, from, repository(c, mirror, "site/bundle:"+tag)))
			}
			to := repository(c, mirror, "site/bundle")
			tags, err := to.Tags(t.Context())
			require.NoError(t, err)
			lasting := bundle.DigestTag(g.Root.Digest.Encoded())
			require.Equal(t, []string{"1", "2", "3", lasting}, tags, "when the others move on, a tag is left")
			lacks, err := to.Lacks(t.Context(), g.Order())
			require.NoError(t, err)
			require.Empty(t, lacks)

			require.NoError(t, to.Delete(t.Context(), g.Root, tags))
			require.NoError(t, to.Delete(t.Context(), g.Root, tags), "what is gone is no fault")
			for _, tag := range tags {
				_, err := repository(c, mirror, "site/bundle:"+tag).Root(t.Context())
				wantFault(t, err, fault.NotFound)
			}
			lacks, err = to.Lacks(t.Context(), g.Order())
			require.NoError(t, err)
			require.Equal(t, digests([]ocispec.Descriptor{g.Root}), digests(lacks))
		})
	}
}

// A page after another, as the specification has it, and never on another host.
func TestPagesOfTagsAreFollowedOnTheSameHost(t *testing.T) {
	next := `</v2/x/tags/list?n=1000&last=b>; rel="next"`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/tags/list"):
		case r.URL.Query().Get("last") == "":
			w.Header().Set("Link", next)
			_, _ = fmt.Fprint(w, `{"name":"x","tags":["b","a"]}`)
		default:
			_, _ = fmt.Fprint(w, `{"name":"x","tags":["c"]}`)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}})
	require.NoError(t, err)
	repo := c.Repository(image.MustReference(host + "/x"))
	tags, err := repo.Tags(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, tags)
	for _, bad := range []string{
		`<http://other.host/v2/x/tags/list?last=b>; rel="next"`,
		`</v2/y/tags/list?last=b>; rel="next"`,
		`</v2/x/tags/list>; rel="next"`, // without end
	} {
		next = bad
		_, err = repo.Tags(t.Context())
		wantFault(t, err, fault.Corrupt, "the registry names")
	}
}

func TestAListOfTagsThatCannotBeIsRefused(t *testing.T) {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}})
	require.NoError(t, err)
	for _, body = range []string{`[]`, `{"tags":["../../x"]}`, `{"tags":[""]}`, `nonsense`} {
		_, err := c.Repository(image.MustReference(host + "/x")).Tags(t.Context())
		wantFault(t, err, fault.Corrupt, "list tags of")
	}
}

func TestARegistryThatDoesNotDeleteSaysSo(t *testing.T) {
	source, root := upstream(t)
	c, _ := client(t, remote.Options{}, source)
	for _, status := range []int{400, 405, 501} {
		source.Fail(real.Fault{Match: real.Match{Method: "DELETE"}, Status: status, Times: 1})
		wantFault(t, repository(c, source, "csi/driver:v1").Delete(t.Context(), root, nil), fault.Refused, "does not allow deletion")
	}
	source.Fail(real.Fault{Match: real.Match{Method: "DELETE"}, Status: 403, Times: 1})
	wantFault(t, repository(c, source, "csi/driver:v1").Delete(t.Context(), root, nil), fault.Forbidden)
	_, err := repository(c, source, "csi/driver:v1").Root(t.Context())
	require.NoError(t, err)
}
