package remote_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// newReferrer makes a signature of the shape that cosign makes: under a tag, or as
// a referrer where tagged is false.
func newReferrer(t *testing.T, subject ocispec.Descriptor, tagged bool, payloads ...string) bundle.Referrer {
	t.Helper()
	config := bundle.Blob(ocispec.MediaTypeImageConfig, fmt.Appendf(nil, `{"rootfs":{"type":"layers"},"of":%q}`, payloads))
	m := ocispec.Manifest{Config: bundle.Plain(config)}
	digest := image.MustDigest(subject.Digest.String())
	a := bundle.Referrer{Subject: digest, Blobs: []ocispec.Descriptor{config}}
	for _, p := range payloads {
		layer := bundle.Blob("application/vnd.dev.cosign.simplesigning.v1+json", []byte(p))
		a.Blobs = append(a.Blobs, layer)
		layer = bundle.Plain(layer)
		layer.Annotations = map[string]string{"dev.cosignproject.cosign/signature": "signature of " + p}
		m.Layers = append(m.Layers, layer)
	}
	if tagged {
		a.Tag = "sha256-" + digest.Hex() + ".sig"
	} else {
		s := bundle.Plain(subject)
		m.Subject, m.ArtifactType = &s, "application/vnd.example.signature"
	}
	a.Node = bundle.NewManifest(m)
	return a
}

func TestAttachmentsAreFoundAndTravel(t *testing.T) {
	source, root := upstream(t)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror, from, to, g := pushing(t, source, options, remote.Options{})
			subject := image.MustDigest(root.Digest.String())
			tagged, referrer := newReferrer(t, g.Root, true, "one"), newReferrer(t, g.Root, false, "two")
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
			third := newReferrer(t, g.Root, false, "three")
			require.NoError(t, to.Attach(t.Context(), third))
			list, err = to.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{
				tagged.Node.Descriptor.Digest.String(), referrer.Node.Descriptor.Digest.String(), third.Node.Descriptor.Digest.String(),
			}, digests(list))
			require.Equal(t, tagged.Tag, list[0].Annotations[ocispec.AnnotationRefName])

			// They travel with the graph to the next registry.
			for _, d := range list {
				a, err := bundle.ReadReferrer(t.Context(), to, subject, d)
				require.NoError(t, err)
				g.Attachments = append(g.Attachments, a)
			}
			next := at(t, remote.Options{}, mirror, "next/bundle:1")
			require.NoError(t, copyGraph(t.Context(), g, to, next))
			again, err := next.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.ElementsMatch(t, digests(list), digests(again))
		})
	}
}

// theOne reads the only manifest that is attached to a subject.
func theOne(t *testing.T, repo *remote.Repository, subject image.Digest) (m ocispec.Manifest) {
	list, err := repo.Attachments(t.Context(), subject)
	require.NoError(t, err)
	require.Len(t, list, 1)
	data, err := bundle.Read(t.Context(), repo, list[0], bundle.MaxManifestSize)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &m))
	return m
}

func TestSignaturesUnderATagAreAddedNotReplaced(t *testing.T) {
	_, root, repo := driver(t, remote.Options{})
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
	require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, true, "site")))
	require.Equal(t, []string{"site"}, layers())
	require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, true, "upstream")))
	require.Equal(t, []string{"site", "upstream"}, layers())
	require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, true, "upstream")), "nothing to add")
	require.Equal(t, []string{"site", "upstream"}, layers())
	require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, true, "a", "site", "upstream")), "holds all that is there")
	require.Equal(t, []string{"a", "site", "upstream"}, layers())
}

// Someone signs between the moment that a tag, or the list of referrers that clients keep, is read
// and the moment that it is written, for the first time or again: what they wrote is not replaced.
func TestSignaturesAtTheSameTimeAreBothKept(t *testing.T) {
	for name, c := range map[string]struct {
		tagged bool
		fault  real.Fault
	}{
		"after the tag is read": {true, real.Fault{Match: real.Match{Method: http.MethodGet}}},
		"before the tag is written again": {true, real.Fault{
			Match: real.Match{Method: http.MethodPut}, Status: 503, Header: map[string]string{"Retry-After": "1"},
		}},
		"after the list is read": {false, real.Fault{Match: real.Match{Method: http.MethodHead}}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := real.Start(t, real.Options{Kind: real.Simple})
			_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
			repo := at(t, remote.Options{}, reg, "csi/driver:v1")
			require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, c.tagged, "first")))
			seen, gate := make(chan string, 1), make(chan struct{})
			c.fault.Match.Path, c.fault.Times, c.fault.Wait, c.fault.Seen = "/manifests/sha256-", 1, gate, seen
			reg.Fail(c.fault)
			slow := make(chan error, 1)
			go func() { slow <- repo.Attach(t.Context(), newReferrer(t, root, c.tagged, "slow")) }()
			<-seen
			require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, c.tagged, "quick")))
			close(gate)
			require.NoError(t, <-slow)
			subject := image.MustDigest(root.Digest.String())
			if c.tagged {
				require.Len(t, theOne(t, repo, subject).Layers, 3)
				return
			}
			list, err := repo.Attachments(t.Context(), subject)
			require.NoError(t, err)
			require.Len(t, list, 3)
		})
	}
}

func TestAttachAsksForWhatTheRegistryAccepted(t *testing.T) {
	reg, root, repo := driver(t, remote.Options{})
	for path, a := range map[string]bundle.Referrer{
		"/blobs/uploads/": newReferrer(t, root, true, "a"), "/manifests/sha256:": newReferrer(t, root, false, "b"),
	} {
		reg.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: path}, Status: 201})
		wantFault(t, repo.Attach(t.Context(), a), fault.Incomplete)
		reg.Heal()
		require.NoError(t, repo.Attach(t.Context(), a))
	}
}

func TestAttachNeedsItsParts(t *testing.T) {
	_, root, repo := driver(t, remote.Options{})
	a := newReferrer(t, root, true, "x")
	a.Blobs[0].Data = nil
	wantFault(t, repo.Attach(t.Context(), a), fault.Incomplete, "sign it again")
}

func TestForbiddenSignatureTagIsAbsentOnlyWhereTheSubjectCanBeRead(t *testing.T) {
	reg, root, repo := driver(t, remote.Options{})
	subject := image.MustDigest(root.Digest.String())
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

func TestTagThatHoldsSomethingElseIsNotOverwritten(t *testing.T) {
	_, root, repo := driver(t, remote.Options{})
	a := newReferrer(t, root, true, "x")
	nodes := graph(t, repo).Manifests
	_, err := repo.PutManifest(t.Context(), "push", a.Tag, nodes[len(nodes)-1])
	require.NoError(t, err, "an index is under the tag")
	wantFault(t, repo.Attach(t.Context(), a), fault.Conflict, "delete the tag", a.Tag)
}

// No push adds so many signatures that readers refuse all of them.
func TestSignaturesAreNotJoinedBeyondWhatIsRead(t *testing.T) {
	_, root, repo := driver(t, remote.Options{})
	var all []string
	for n := range 256 {
		all = append(all, fmt.Sprintf("claim %d", n))
	}
	require.NoError(t, repo.Attach(t.Context(), newReferrer(t, root, true, all...)))
	wantFault(t, repo.Attach(t.Context(), newReferrer(t, root, true, "one more")), fault.Refused, "at most 256 signatures")
	list, err := repo.Attachments(t.Context(), image.MustDigest(root.Digest.String()))
	require.NoError(t, err)
	evidence, err := trust.ReadEvidence(t.Context(), repo, list...)
	require.NoError(t, err)
	require.Len(t, evidence, 256)
}
