package remote_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func part(mediaType, text string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: ocidigest([]byte(text)), Size: int64(len(text)), Data: []byte(text)}
}

func plain(d ocispec.Descriptor) ocispec.Descriptor {
	d.Data = nil
	return d
}

// attachment makes a signature of the shape that cosign makes: under a tag, or as
// a referrer where tagged is false.
func attachment(t *testing.T, subject ocispec.Descriptor, tagged bool, payloads ...string) bundle.Attachment {
	t.Helper()
	config := part(ocispec.MediaTypeImageConfig, fmt.Sprintf(`{"rootfs":{"type":"layers"},"of":%q}`, payloads))
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: plain(config)}
	digest := image.MustDigest(subject.Digest.String())
	a := bundle.Attachment{Subject: digest, Blobs: []ocispec.Descriptor{config}}
	for _, p := range payloads {
		layer := part("application/vnd.dev.cosign.simplesigning.v1+json", p)
		a.Blobs = append(a.Blobs, layer)
		layer = plain(layer)
		layer.Annotations = map[string]string{"dev.cosignproject.cosign/signature": "signature of " + p}
		m.Layers = append(m.Layers, layer)
	}
	if tagged {
		a.Tag = "sha256-" + digest.Hex() + ".sig"
	} else {
		s := plain(subject)
		m.Subject, m.ArtifactType = &s, "application/vnd.example.signature"
	}
	data, err := json.Marshal(m)
	require.NoError(t, err)
	a.Node = bundle.Node{Descriptor: plain(part(ocispec.MediaTypeImageManifest, string(data))), Data: data}
	return a
}

func TestAttachmentsAreFoundAndTravel(t *testing.T) {
	source, root := upstream(t)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, options)
			c, _ := client(t, remote.Options{}, source, mirror)
			from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
			g := graph(t, from)
			subject := image.MustDigest(root.Digest.String())
			tagged, referrer := attachment(t, g.Root, true, "one"), attachment(t, g.Root, false, "two")
			wantFault(t, to.Attach(t.Context(), tagged), fault.NotFound, "push the bundle before")
			_, err := to.Attachments(t.Context(), subject)
			wantFault(t, err, fault.NotFound)

			require.NoError(t, copyGraph(t.Context(), g, from, to))
			list, err := to.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.Empty(t, list)

			require.NoError(t, to.Attach(t.Context(), tagged))
			require.NoError(t, to.Attach(t.Context(), referrer))
			require.NoError(t, to.Attach(t.Context(), referrer), "twice is once")
			third := attachment(t, g.Root, false, "three")
			require.NoError(t, to.Attach(t.Context(), third))
			list, err = to.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{
				tagged.Node.Descriptor.Digest.String(), referrer.Node.Descriptor.Digest.String(), third.Node.Descriptor.Digest.String(),
			}, digests(list))
			require.Equal(t, tagged.Tag, list[0].Annotations[ocispec.AnnotationRefName])

			// They travel with the graph to the next registry.
			for _, d := range list {
				a, err := bundle.ReadAttachment(t.Context(), to, subject, d)
				require.NoError(t, err)
				g.Attachments = append(g.Attachments, a)
			}
			next := repository(c, mirror, "next/bundle:1")
			require.NoError(t, copyGraph(t.Context(), g, to, next))
			again, err := next.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.ElementsMatch(t, digests(list), digests(again))
		})
	}
}

// theOne reads the only manifest that is attached to a subject.
func theOne(t *testing.T, repo *remote.Repository, subject image.Digest) (m ocispec.Manifest) {
	t.Helper()
	list, err := repo.Attachments(t.Context(), subject)
	require.NoError(t, err)
	require.Len(t, list, 1)
	data, err := repo.Manifest(t.Context(), list[0])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &m))
	return m
}

func TestSignaturesUnderATagAreAddedNotReplaced(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	subject := image.MustDigest(root.Digest.String())
	layers := func() []string {
		m := theOne(t, repo, subject)
		_, err := readBlob(repo, m.Config, 0)
		require.NoError(t, err)
		var out []string
		for _, l := range m.Layers {
			data, err := readBlob(repo, l, 0)
			require.NoError(t, err)
			out = append(out, string(data))
		}
		return out
	}
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "site")))
	require.Equal(t, []string{"site"}, layers())
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "upstream")))
	require.Equal(t, []string{"site", "upstream"}, layers())
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "upstream")), "nothing to add")
	require.Equal(t, []string{"site", "upstream"}, layers())
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "a", "site", "upstream")), "holds all that is there")
	require.Equal(t, []string{"a", "site", "upstream"}, layers())
}

// Somebody signs between the moment that a tag is read and the moment that it is written:
// what they wrote is not replaced.
func TestSignaturesAtTheSameTimeAreBothKept(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "first")))
	seen, gate := make(chan string, 1), make(chan struct{})
	reg.Fail(real.Fault{Match: real.Match{Method: http.MethodGet, Path: "/manifests/sha256:"}, Times: 1, Wait: gate, Seen: seen})
	slow := make(chan error, 1)
	go func() { slow <- repo.Attach(t.Context(), attachment(t, root, true, "slow")) }()
	<-seen
	require.NoError(t, repo.Attach(t.Context(), attachment(t, root, true, "quick")))
	close(gate)
	require.NoError(t, <-slow)
	m := theOne(t, repo, image.MustDigest(root.Digest.String()))
	require.Len(t, m.Layers, 3)
}

// Where clients keep the list of referrers, two who attach at once both stay in it:
// whether the second writes between the first's look at the list and its write, or right
// after that.
func TestReferrersAttachedAtTheSameTimeAreBothListed(t *testing.T) {
	for name, method := range map[string]string{"before the first writes": http.MethodHead, "before the second is done": http.MethodPut} {
		t.Run(name, func(t *testing.T) {
			reg := real.Start(t, real.Options{Kind: real.Simple})
			_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
			c, _ := client(t, remote.Options{}, reg)
			repo := repository(c, reg, "csi/driver:v1")
			subject := image.MustDigest(root.Digest.String())
			slow, quick := attachment(t, root, false, "slow"), attachment(t, root, false, "quick")
			seen, gate := make(chan string, 1), make(chan struct{})
			reg.Fail(real.Fault{Match: real.Match{Method: method, Path: "/manifests/sha256-" + subject.Hex()}, Times: 1, Wait: gate, Seen: seen})
			slowly, quickly := make(chan error, 1), make(chan error, 1)
			go func() { slowly <- repo.Attach(t.Context(), slow) }()
			<-seen
			if method == http.MethodPut { // the second has listed itself, and is not done
				done, goOn := make(chan string, 1), make(chan struct{})
				reg.Fail(real.Fault{Match: real.Match{Method: http.MethodHead, Path: "/manifests/" + quick.Node.Descriptor.Digest.String()}, Times: 1, Wait: goOn, Seen: done})
				go func() { quickly <- repo.Attach(t.Context(), quick) }()
				<-done
				close(gate)
				require.NoError(t, <-slowly)
				close(goOn)
			} else {
				go func() { quickly <- repo.Attach(t.Context(), quick) }()
				require.NoError(t, <-quickly)
				close(gate)
				quickly <- <-slowly
			}
			require.NoError(t, <-quickly)
			list, err := repo.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{slow.Node.Descriptor.Digest.String(), quick.Node.Descriptor.Digest.String()}, digests(list))
		})
	}
}

// Two push what is about one image, and one of them has read the list before the other
// writes it, and replaces it afterwards: who has written first looks once more before
// the push is done, and both stay listed.
func TestReferrersPushedAtTheSameTimeAreBothListed(t *testing.T) {
	reg := real.Start(t, real.Options{Kind: real.Simple})
	_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	subject := image.MustDigest(root.Digest.String())
	late, first := attachment(t, root, false, "late"), attachment(t, root, false, "first")
	push := func(tag string, a bundle.Attachment) chan error {
		g := graph(t, repo)
		g.Attachments = []bundle.Attachment{a}
		done := make(chan error, 1)
		go func() { done <- copyGraph(t.Context(), g, repo, repository(c, reg, "csi/driver:"+tag)) }()
		return done
	}
	writes, write := make(chan string, 1), make(chan struct{})
	reg.Fail(real.Fault{Match: real.Match{Method: http.MethodPut, Path: "/manifests/sha256-" + subject.Hex()}, Times: 1, Wait: write, Seen: writes})
	lately := push("late", late)
	<-writes // it has read that the list is empty, and its own is on its way
	tags, tag := make(chan string, 1), make(chan struct{})
	reg.Fail(real.Fault{Match: real.Match{Method: http.MethodPut, Path: "/manifests/first"}, Times: 1, Wait: tag, Seen: tags})
	firstly := push("first", first)
	<-tags // it is listed, and has seen so
	close(write)
	require.NoError(t, <-lately)
	close(tag)
	require.NoError(t, <-firstly)
	list, err := repo.Attachments(t.Context(), subject)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{late.Node.Descriptor.Digest.String(), first.Node.Descriptor.Digest.String()}, digests(list))
}

func TestAttachNeedsItsParts(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	a := attachment(t, root, true, "x")
	a.Blobs[0].Data = nil
	wantFault(t, repository(c, reg, "csi/driver:v1").Attach(t.Context(), a), fault.Incomplete, "sign it again")
}

func TestForbiddenSignatureTagIsAbsentOnlyWhereTheSubjectCanBeRead(t *testing.T) {
	reg, root := upstream(t)
	subject := image.MustDigest(root.Digest.String())
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	reg.Fail(real.Fault{Match: real.Match{Path: "/manifests/sha256-"}, Status: 403})
	list, err := repo.Attachments(t.Context(), subject)
	require.NoError(t, err)
	require.Empty(t, list)
	reg.Fail(real.Fault{Match: real.Match{Path: "/manifests/sha256:"}, Status: 403})
	_, err = repo.Attachments(t.Context(), subject)
	wantFault(t, err, fault.Forbidden)
	reg.Heal()
	reg.Fail(real.Fault{Match: real.Match{Path: ".sig"}, Status: 500})
	_, err = repo.Attachments(t.Context(), subject)
	wantFault(t, err, fault.Unreachable)
}

func TestRegistryThatAnnouncesReferrersItDoesNotList(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	subject := image.MustDigest(root.Digest.String())
	reg.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/manifests/"}, ReplaceHeader: map[string]string{"OCI-Subject": root.Digest.String()}})
	a := attachment(t, root, false, "x")
	require.NoError(t, repo.Attach(t.Context(), a))
	list, err := repo.Attachments(t.Context(), subject)
	require.NoError(t, err)
	require.Equal(t, []string{a.Node.Descriptor.Digest.String()}, digests(list))
	require.Equal(t, 1, reg.Count("PUT", "/manifests/sha256-"+subject.Hex()), "the list is kept under a tag")
}

func TestReferrersComeInPages(t *testing.T) {
	subject := image.DigestOf([]byte("subject"))
	entry := func(text string) ocispec.Descriptor {
		return plain(part(ocispec.MediaTypeImageManifest, text))
	}
	var link func(page string) string
	var extra []ocispec.Descriptor
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/v2/":
		case strings.HasSuffix(req.URL.Path, "/manifests/"+subject.String()):
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", subject.String())
			w.Header().Set("Content-Length", "7")
		case strings.Contains(req.URL.Path, "/referrers/"):
			page := req.URL.Query().Get("page")
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			if l := link(page); l != "" {
				w.Header().Set("Link", l)
			}
			list := append([]ocispec.Descriptor{entry("on page " + page)}, extra...)
			require.NoError(t, json.NewEncoder(w).Encode(ocispec.Index{Manifests: list}))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	host := server.Listener.Addr().String()
	list := func() ([]ocispec.Descriptor, error) {
		c, err := remote.NewClient(remote.Options{PlainHTTP: []string{host}, Sleep: (&naps{}).sleep})
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // idle connections only
		return c.Repository(image.MustReference(host+"/a/b:1")).Attachments(t.Context(), subject)
	}

	link = func(page string) string {
		return map[string]string{"": `<?page=2>; rel="next"`, "2": `</v2/a/b/referrers/` + subject.String() + `?page=3>; rel="next"`}[page]
	}
	got, err := list()
	require.NoError(t, err)
	require.Equal(t, digests([]ocispec.Descriptor{entry("on page "), entry("on page 2"), entry("on page 3")}), digests(got))

	link = func(string) string { return `<https://169.254.169.254/latest>; rel="next"` }
	_, err = list()
	wantFault(t, err, fault.Corrupt, "elsewhere")
	link = func(string) string { return `<?page=again>; rel="next"` }
	_, err = list()
	wantFault(t, err, fault.Corrupt, "without end")
	link = func(string) string { return "" }
	extra = []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageManifest, Digest: "md5:1", Size: 1}}
	_, err = list()
	wantFault(t, err, fault.Corrupt, "list signatures of")
	extra = make([]ocispec.Descriptor, 1001)
	for i := range extra {
		extra[i] = entry(fmt.Sprint(i))
	}
	_, err = list()
	wantFault(t, err, fault.Corrupt, "more than 1000")
}

func TestTagThatHoldsSomethingElseIsNotOverwritten(t *testing.T) {
	reg, root := upstream(t)
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	a := attachment(t, root, true, "x")
	other := repository(c, reg, "csi/driver:"+a.Tag)
	require.NoError(t, copyGraph(t.Context(), graph(t, repo), repo, other), "an index is under the tag")
	wantFault(t, repo.Attach(t.Context(), a), fault.Conflict, "delete the tag", a.Tag)
}

// One host may serve several registries by path: what one has not, another may have.
func TestReferrersAPIIsAskedForInEachRepository(t *testing.T) {
	source, _ := upstream(t)
	mirror := real.Start(t, real.Options{Kind: real.Referrers})
	mirror.Fail(real.Fault{Match: real.Match{Path: "/v2/old/bundle/referrers/"}, Status: 404})
	c, _ := client(t, remote.Options{}, source, mirror)
	from := repository(c, source, "csi/driver:v1")
	g := graph(t, from)
	referrer := attachment(t, g.Root, false, "theirs")
	for _, name := range []string{"old/bundle:1", "new/bundle:1"} {
		to := repository(c, mirror, name)
		require.NoError(t, copyGraph(t.Context(), g, from, to))
		require.NoError(t, to.Attach(t.Context(), referrer))
		found, err := to.Attachments(t.Context(), referrer.Subject)
		require.NoError(t, err)
		require.Len(t, found, 1, name)
	}
	_, err := repository(c, mirror, "new/bundle:sha256-"+referrer.Subject.Hex()).Root(t.Context())
	wantFault(t, err, fault.NotFound) // the list is the registry's there
	asked := mirror.Count("GET", "/v2/old/bundle/referrers/")
	require.Equal(t, 1, asked, "once is enough where there is none")
}
