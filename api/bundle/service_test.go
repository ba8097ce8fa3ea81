package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// serviceLock is a lock of services alone: "haproxy@3.2.23" and the like.
func serviceLock(t *testing.T, ids ...string) *bundle.Lock {
	t.Helper()
	l := &bundle.Lock{
		APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Platforms: []image.Platform{{}},
		Matrix: bundle.MatrixRef{Serial: 1, Digest: image.DigestOf([]byte("matrix")), Size: 6},
	}
	for _, id := range ids {
		r := bundle.Release{Driver: bundle.JumpHost}
		if parsed, err := matrix.ParseServiceID(id); err == nil {
			r.Driver, r.Version = parsed.Driver, parsed.Version
		} else {
			require.NoError(t, r.Version.UnmarshalText([]byte(id[len("vdo-jumphost@"):])))
		}
		ref := must(image.ParseReference("registry.test/" + string(r.Driver) + ":v" + r.Version.String()))(t)
		r.Images = map[string]string{ref.String(): ref.String()}
		l.Releases = append(l.Releases, r)
		l.Images = append(l.Images, bundle.Image{
			Reference: ref, Digest: image.DigestOf([]byte(id)), MediaType: "application/vnd.oci.image.index.v1+json", Size: 7, UsedBy: []string{r.ID()},
		})
	}
	l.Sort()
	return l
}

func TestServicesOfALock(t *testing.T) {
	doc := must(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
	l := serviceLock(t, "haproxy@2.6.33", "haproxy@2.8.28", "dex@2.34.0", "vdo-jumphost@1.9.0", "vdo-jumphost@1.10.0")
	require.NoError(t, l.Validate())
	data := must(l.JSON())(t)
	l = must(bundle.ParseLock("lock", data))(t)

	i, v, err := l.Service(matrix.HAProxy, doc)
	require.NoError(t, err)
	require.Equal(t, "2.8.28", v.String(), "the deprecated one is not taken")
	require.Equal(t, image.DigestOf([]byte("haproxy@2.8.28")), i.Digest)
	i, v, err = l.Service(bundle.JumpHost, doc)
	require.NoError(t, err)
	require.Equal(t, "1.10.0", v.String())
	require.Equal(t, "registry.test/vdo-jumphost:v1.10.0", i.Reference.String())

	_, _, err = l.Service(matrix.Dex, doc)
	require.Equal(t, fault.NotFound, fault.ReasonOf(err), "%v: 2.34.0 is withdrawn", err)
	_, _, err = serviceLock(t, "dex@2.44.0").Service(matrix.HAProxy, doc)
	require.ErrorContains(t, err, "find service haproxy: the bundle holds no release of it")
	require.Contains(t, fault.HintOf(err), "--services sip")
}

func TestServicesThatALockCannotHave(t *testing.T) {
	l := serviceLock(t, "haproxy@3.2.23")
	l.Releases[0].Manifests = []bundle.File{{Name: "x.yaml", URL: "https://x.test/x.yaml", Digest: image.DigestOf(nil), Size: 1}}
	require.ErrorContains(t, l.Validate(), "releases[0].manifests: haproxy is a service, which has none")
	l = serviceLock(t, "haproxy@3.2.23", "dex@2.44.0")
	l.Releases[0].Images["registry.test/other:1"] = l.Releases[1].Images["registry.test/haproxy:v3.2.23"]
	require.ErrorContains(t, l.Validate(), "releases[0].images: dex is a service, which has one, not 2")
	l = serviceLock(t, "haproxy@3.2.23")
	l.Releases[0].Driver = "nginx"
	require.ErrorContains(t, l.Validate(), `"nginx" is none of`)
}
