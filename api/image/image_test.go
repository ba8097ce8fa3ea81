package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const someDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestParseReferenceNormalises(t *testing.T) {
	for in, want := range map[string]string{
		"registry.k8s.io/csi-vsphere/driver:v3.5.1":       "registry.k8s.io/csi-vsphere/driver:v3.5.1",
		"antrea/antrea-agent-ubuntu":                      "docker.io/antrea/antrea-agent-ubuntu:latest",
		"busybox":                                         "docker.io/library/busybox:latest",
		"index.docker.io/busybox:1":                       "docker.io/library/busybox:1",
		"localhost:5000/a/b":                              "localhost:5000/a/b:latest",
		"[::1]:5000/a:1":                                  "[::1]:5000/a:1",
		"mirror.corp/vdo/drivers:1@" + someDigest:         "mirror.corp/vdo/drivers:1@" + someDigest,
		"mirror.corp/vdo/drivers@" + someDigest:           "mirror.corp/vdo/drivers@" + someDigest,
		"localhost/a":                                     "localhost/a:latest",
		"registry.k8s.io/sig-storage/csi-provisioner:v4_": "registry.k8s.io/sig-storage/csi-provisioner:v4_",
	} {
		ref, err := image.ParseReference(in)
		require.NoError(t, err, in)
		require.Equal(t, want, ref.String(), in)
		again, err := image.ParseReference(ref.String())
		require.NoError(t, err)
		require.Equal(t, ref, again)
	}
}

func TestParseReferenceRefuses(t *testing.T) {
	for _, in := range []string{
		"", ":", "@", "UPPER/case", "host.io/", "host.io/a:", "host.io/a:b c", "host.io/a@sha256:12", "host.io/a@md5:" + strings.Repeat("0", 64),
		"host.io/a//b", "host.io/../b", "ho st.io/a", "host.io:port/a", "host.io:99999/a", "host.io:0/a", "/a", "host.io/a\nb", "docker.io/", "http://host.io/a",
		"host.io/" + strings.Repeat("a", 2000),
	} {
		_, err := image.ParseReference(in)
		require.Error(t, err, "%q", in)
	}
}

func TestPinAndIdentifier(t *testing.T) {
	ref := image.MustReference("registry.k8s.io/a/b:1")
	require.Equal(t, "1", ref.Identifier())
	pinned := ref.Pin(image.MustDigest(someDigest))
	require.Equal(t, "registry.k8s.io/a/b@"+someDigest, pinned.String())
	require.Equal(t, someDigest, pinned.Identifier())
	tagged, err := pinned.WithTag("2")
	require.NoError(t, err)
	require.Equal(t, "registry.k8s.io/a/b:2", tagged.String())
}

func TestBelow(t *testing.T) {
	mirror := image.MustReference("registry.site:5000/vdo/drivers:1")
	digest := "@sha256:" + strings.Repeat("0", 64)
	for from, want := range map[string]string{
		"registry.k8s.io/csi-vsphere/driver:v3.5.1": "registry.site:5000/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1",
		"nginx":                       "registry.site:5000/vdo/drivers/docker.io/library/nginx:latest",
		"Host.Corp:8443/a/b" + digest: "registry.site:5000/vdo/drivers/host.corp_8443/a/b" + digest,
		"localhost/x:1" + digest:      "registry.site:5000/vdo/drivers/localhost/x:1" + digest,
	} {
		got, err := image.MustReference(from).Below(mirror)
		require.NoError(t, err)
		require.Equal(t, want, got.String())
		again, err := image.ParseReference(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, from := range []string{"[::1]:5000/x:1", "registry.test/" + strings.Repeat("x", 1005)} {
		_, err := image.MustReference(from).Below(mirror)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), from)
		require.NotEmpty(t, fault.HintOf(err))
	}
}

func TestRelocate(t *testing.T) {
	for in, want := range map[string]string{
		"gcr.io/cloud-provider-vsphere/csi/release/driver:v3.1.2":   "registry.k8s.io/csi-vsphere/driver:v3.1.2",
		"gcr.io/cloud-provider-vsphere/csi/release/syncer:v3.3.1":   "registry.k8s.io/csi-vsphere/syncer:v3.3.1",
		"gcr.io/cloud-provider-vsphere/cpi/release/manager:v1.28.0": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.28.0",
		"k8s.gcr.io/sig-storage/csi-attacher:v4.2.0":                "registry.k8s.io/sig-storage/csi-attacher:v4.2.0",
		"quay.io/k8scsi/csi-attacher:v3.2.0":                        "registry.k8s.io/sig-storage/csi-attacher:v3.2.0",
	} {
		got, why := image.Relocate(image.MustReference(in))
		require.Equal(t, want, got.String())
		require.NotEmpty(t, why)
	}
	stays := image.MustReference("registry.k8s.io/csi-vsphere/driver:v3.5.1")
	got, why := image.Relocate(stays)
	require.Equal(t, stays, got)
	require.Empty(t, why)
}

func TestSourceMapLongestPrefixOfWholeComponentsWins(t *testing.T) {
	var m image.SourceMap
	require.NoError(t, m.Add("registry.k8s.io=mirror:5000/k8s"))
	require.NoError(t, m.Add("registry.k8s.io/csi-vsphere=other.io"))
	for in, want := range map[string]string{
		"registry.k8s.io/sig-storage/a:1":          "mirror:5000/k8s/sig-storage/a:1",
		"registry.k8s.io/csi-vsphere/driver:1":     "other.io/driver:1",
		"registry.k8s.io/csi-vsphere:1":            "mirror:5000/k8s/csi-vsphere:1", // a host alone is no repository
		"registry.k8s.io/csi-vsphere-x/driver:1":   "mirror:5000/k8s/csi-vsphere-x/driver:1",
		"docker.io/antrea/antrea-agent-ubuntu:2.5": "docker.io/antrea/antrea-agent-ubuntu:2.5",
	} {
		require.Equal(t, want, m.Apply(image.MustReference(in)).String())
	}
	for _, bad := range []string{"", "a", "=", "a=", "=b", "http://a=b", "a.io=b.io=c.io", "registry.k8s.io=again.io", "a.io/=b.io", "b.io=mirror/k8s", "k8s=b.io", "index.docker.io=b.io/hub"} {
		require.Error(t, m.Add(bad), "%q", bad)
	}
}

func TestPlatform(t *testing.T) {
	for _, s := range []string{"linux/amd64", "linux/arm/v7", "all"} {
		p, err := image.ParsePlatform(s)
		require.NoError(t, err)
		require.Equal(t, s, p.String())
	}
	for _, s := range []string{"", "linux", "linux/", "a/b/c/d", "Linux/amd64"} {
		_, err := image.ParsePlatform(s)
		require.Error(t, err, "%q", s)
	}
}

// What is a reference here is one for go-containerregistry and for oras, and names the
// same image: both are handed what was parsed here.
func agrees(t *testing.T, ref image.Reference) {
	if len(ref.Path()) > 255 {
		return // go-containerregistry takes no longer ones
	}
	theirs, err := name.ParseReference(ref.String())
	require.NoError(t, err, ref)
	require.Equal(t, strings.Replace(theirs.Context().RegistryStr(), "index.docker.io", "docker.io", 1), ref.Host())
	require.Equal(t, theirs.Context().RepositoryStr(), ref.Path())
	require.Equal(t, theirs.Identifier(), ref.Identifier())
	oras, err := registry.ParseReference(ref.String())
	require.NoError(t, err, ref)
	require.Equal(t, oras.Registry, ref.Host())
	require.Equal(t, oras.Repository, ref.Path())
	require.Equal(t, oras.Reference, ref.Identifier())
}

// A reference is read as it is written, and means what the libraries make of it.
func FuzzReferencesMeanWhatTheLibrariesMakeOfThem(f *testing.F) {
	for _, in := range []string{
		"registry.k8s.io/csi-vsphere/driver:v3.5.1", "antrea/antrea-agent-ubuntu", "busybox", "index.docker.io/busybox:1",
		"localhost:5000/a/b", "[::1]:5000/a:1", "mirror.corp/vdo/drivers:1@" + someDigest, "mirror.corp/vdo/drivers@" + someDigest,
		"localhost/a", "a.b/c__d/e-f.g:T_1.2-x", "10.0.0.1:443/x", "Host:1/a--b",
	} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := image.ParseReference(s)
		if err != nil {
			return
		}
		again, err := image.ParseReference(ref.String())
		require.NoError(t, err)
		require.Equal(t, ref, again)
		agrees(t, ref)
	})
}

func TestAttachedTagsAreWrittenAndRead(t *testing.T) {
	d := image.DigestOf([]byte("x"))
	for _, s := range append(image.CosignSuffixes(), image.ReferrersList, ".confirmed") {
		tag := s.TagOf(d)
		require.Equal(t, "sha256-"+d.Hex()+string(s), tag)
		subject, suffix, ok := image.ParseAttachedTag(tag)
		require.True(t, ok, tag)
		require.Equal(t, d, subject)
		require.Equal(t, s, suffix)
	}
	for _, tag := range []string{"", "v1", "sha256-", "sha256-abc.sig", "sha256-" + strings.ToUpper(d.Hex()) + ".sig", "sha512-" + d.Hex(), d.Hex() + ".sig", "sha256-" + d.Hex() + "0", "sha256-" + d.Hex() + "-x"} {
		_, _, ok := image.ParseAttachedTag(tag)
		require.False(t, ok, tag)
	}
}
