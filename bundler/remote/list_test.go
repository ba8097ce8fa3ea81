package remote_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A list comes page by page, from no other address, and within bounds over all pages.
// What a list of referrers says beside the manifests is not kept: an annotation could pass
// for a tag.
func TestListsComeInPagesWithinBounds(t *testing.T) {
	subject := image.DigestOf([]byte("subject"))
	list := "/v2/a/b/referrers/" + subject.String()
	entries := func(n int, filler string) (out []ocispec.Descriptor) {
		for i := range n {
			d := bundle.Blob(ocispec.MediaTypeImageManifest, []byte(fmt.Sprint(i)))
			d.ArtifactType, d.Annotations = "a/b", map[string]string{ocispec.AnnotationRefName: "latest", "x": filler}
			out = append(out, d)
		}
		return out
	}
	type page struct {
		next string // an address, or whole Link headers, by line
		body any
	}
	one := func(next string, body any) map[string]page { return map[string]page{"": {next, body}} }
	circle := func(body any) map[string]page { return map[string]page{"": {"?page=1", body}, "1": {"?page=1", body}} }
	index := func(list ...ocispec.Descriptor) any { return ocispec.Index{Manifests: list} }
	tags := func(tags ...string) any { return map[string]any{"name": "a/b", "tags": tags} }
	impossible := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: "md5:1", Size: 1}
	for name, c := range map[string]struct {
		pages     map[string]page // by the page of the query
		referrers []string
		tags      []string
		fault     string
		reason    fault.Reason // "": corrupt
	}{
		"referrers": {
			pages: map[string]page{
				"":  {"https://169.254.169.254/latest?page=2", index(entries(1, "")...)},
				"2": {list + "?page=3", index(entries(2, "")...)},
				"3": {"", index(entries(1, "")...)},
			},
			referrers: digests(append(append(entries(1, ""), entries(2, "")...), entries(1, "")...)),
		},
		"without end":     {pages: circle(index()), fault: "without end"},
		"gone in between": {pages: one("?page=2", index(entries(1, "")...)), fault: "list x", reason: fault.NotFound},
		"refused in between": {
			pages: map[string]page{"": {"?page=2", index()}, "2": {"", http.StatusForbidden}},
			fault: "list x", reason: fault.Forbidden,
		},
		"what cannot be": {pages: one("", index(impossible)), fault: "list x"},
		"too many":       {pages: one("", index(entries(1001, "")...)), fault: "more than 1000"},
		"too many bytes": {
			pages: circle(index(entries(1, strings.Repeat("x", 3<<20))...)), fault: "longer than 8388608 bytes",
		},
		"tags": {
			pages: map[string]page{
				"": {"/repository/a/v2/b/tags/list?page=2", tags("b", subject.String(), "a")}, "2": {"", tags("c")},
			},
			tags: []string{"a", "b", "c"},
		},
		"tags, with other links": {
			pages: map[string]page{
				"":  {"<?page=1>; rel=\"first\"; title=\"the next\"\n<?page=2>; rel=\"next\"", tags("a")},
				"2": {"<?page=1>; rel=first, <?page=3>; rel=next", tags("b")},
				"3": {`<?page=1>; rel="prev"; title="before the next"`, tags("c")},
			},
			tags: []string{"a", "b", "c"},
		},
		"an empty link":       {pages: one("\n", tags("a")), tags: []string{"a"}},
		"a link that is none": {pages: one("?page=2; rel=next", tags("a")), tags: []string{}, fault: "names no address"},
		"tags that are none":  {pages: one("", tags("../../x")), tags: []string{}, fault: "is not a tag"},
		"no JSON of tags":     {pages: one("", []int{}), tags: []string{}, fault: "JSON of the right form"},
	} {
		t.Run(name, func(t *testing.T) {
			cl, host := serving(t, remote.Options{}, func(w http.ResponseWriter, req *http.Request) {
				p, ok := c.pages[req.URL.Query().Get("page")]
				if !ok {
					p.body = http.StatusNotFound
				}
				if status, is := p.body.(int); is {
					w.WriteHeader(status)
					return
				}
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex+"; charset=utf-8") // which is the type
				if strings.TrimSpace(p.next) != "" && !strings.Contains(p.next, "rel=") {
					p.next = "<" + p.next + `>; rel="next"`
				}
				for link := range strings.Lines(p.next) {
					w.Header().Add("Link", strings.TrimSpace(link))
				}
				_ = json.NewEncoder(w).Encode(p.body)
			})
			repo := cl.Repository(image.MustReference(host + "/a/b"))
			var err error
			if c.tags != nil {
				var got []string
				if got, err = repo.Tags(t.Context()); c.fault == "" {
					require.Equal(t, c.tags, got)
				}
			} else {
				var got []ocispec.Descriptor
				if got, err = repo.Referrers(t.Context(), "list x", subject); c.fault == "" {
					require.Equal(t, c.referrers, digests(got))
				}
				for _, d := range got {
					require.Equal(t, "a/b", d.ArtifactType)
					require.Empty(t, d.Annotations)
					require.Empty(t, d.Data)
				}
			}
			if c.fault == "" {
				require.NoError(t, err)
				return
			}
			wantFault(t, err, cmp.Or(c.reason, fault.Corrupt), c.fault)
		})
	}
}

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
			if options.Auth == real.Token { // as Quay, where who may push may delete
				mirror.Fail(real.Fault{Match: real.Match{Path: "/auth/token", Query: "delete"}, Status: 400})
				mirror.Fail(real.Fault{Match: real.Match{Method: "DELETE"}, Status: 202})
				require.NoError(t, at(t, remote.Options{}, mirror, "site/bundle").Delete(t.Context(), g.Root, nil))
			}
		})
	}
}

func TestARegistryThatDoesNotDeleteSaysSo(t *testing.T) {
	source, root, repo := driver(t, remote.Options{})
	for _, status := range []int{400, 405, 501} {
		source.Fail(real.Fault{Match: real.Match{Method: "DELETE"}, Status: status, Times: 1})
		wantFault(t, repo.Delete(t.Context(), root, nil), fault.Refused, "does not allow deletion")
	}
	source.Fail(real.Fault{Match: real.Match{Method: "DELETE"}, Status: 403, Times: 1})
	wantFault(t, repo.Delete(t.Context(), root, nil), fault.Forbidden)
	_, err := repo.Root(t.Context())
	require.NoError(t, err)
}

// What is to be listed is listed where readers look: by the API where there is one, be it a
// moment later. What someone put under the tag of a list, and is none, is not replaced by one.
func TestReferrersAreListedWhereReadersLook(t *testing.T) {
	const never = 1000
	subject := image.DigestOf([]byte("subject"))
	manifest := bundle.Blob(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2}`))
	for name, c := range map[string]struct {
		after  int64 // answers of the API until it is listed; 0: there is none
		reason fault.Reason
		text   string
	}{
		"by no API":   {0, fault.Conflict, "no list of referrers"},
		"a bit later": {3, "", ""},
		"by a liar":   {never, fault.Refused, "does not list it"},
	} {
		t.Run(name, func(t *testing.T) {
			var puts, asked atomic.Int64
			cl, host := serving(t, remote.Options{}, func(w http.ResponseWriter, req *http.Request) {
				switch {
				case req.Method == http.MethodPut:
					puts.Add(1)
				case strings.HasSuffix(req.URL.Path, "/manifests/sha256-"+subject.Hex()):
					w.Header().Set("Content-Type", manifest.MediaType)
					_, _ = w.Write(manifest.Data)
				case !strings.Contains(req.URL.Path, "/referrers/"):
				case c.after == 0:
					w.WriteHeader(http.StatusNotFound)
				default:
					var list ocispec.Index
					if asked.Add(1) == c.after {
						list.Manifests = append(list.Manifests, bundle.Plain(manifest))
					}
					w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
					_ = json.NewEncoder(w).Encode(list)
				}
			})
			repo := cl.Repository(image.MustReference(host + "/a/b"))
			n := bundle.Node{Descriptor: bundle.Plain(manifest), Data: manifest.Data}
			err := repo.EnsureListed(t.Context(), "push", subject, n)
			require.Zero(t, puts.Load())
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			wantFault(t, err, c.reason, c.text)
		})
	}
}
