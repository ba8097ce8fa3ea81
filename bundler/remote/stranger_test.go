package remote_test

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// plainly gives the error itself.
type plainly struct{}

func (plainly) Explain(op, subject string, err error) error {
	return &fault.Error{Reason: fault.Refused, Op: op, Subject: subject, Hint: "none", Err: err}
}

// Where a server may not lead to this machine, it is refused before it is dialled, by a
// proxy neither.
func TestThisMachineIsRefusedByItsAddressAndItsNames(t *testing.T) {
	reg, service := registry.Start(t, registry.Options{TLS: true}), registry.Start(t, registry.Options{TLS: true})
	_, root := images.Push(t, reg, "a/b:1", images.Spec{})
	port := service.Host[len("127.0.0.1"):]
	for _, name := range []string{"127.0.0.1", "localhost", "[::1]", "127.1.2.3"} {
		reg.Heal()
		reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/manifests/"}, RedirectTo: "https://" + name + port})
		c, err := remote.NewClient(remote.Options{CA: append(reg.CA(), service.CA()...), NoLoopback: true, Attempts: 1, Explainer: plainly{}})
		require.NoError(t, err)
		_, err = c.Repository(image.MustReference(reg.Host+"/a/b:1")).Manifest(t.Context(), ocispec.Descriptor{MediaType: root.MediaType, Digest: root.Digest, Size: root.Size})
		require.ErrorIs(t, err, remote.ErrThisMachine, name)
		require.Equal(t, fault.Refused, fault.ReasonOf(err), name)
		require.Empty(t, service.Requests(), name)
		require.NoError(t, c.Close())
	}
}
