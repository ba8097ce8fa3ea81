package upstream_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// registry has images, each with the same attachment, and serves one at a time.
type registry struct {
	medium.Source
	store    bundles.Store
	attached ocispec.Descriptor
	err      error
	busy     *sync.Mutex
}

func (r registry) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return r.store.Fetch(ctx, d, offset)
}

func (r registry) Attachments(context.Context, image.Digest) ([]ocispec.Descriptor, error) {
	if !r.busy.TryLock() {
		return nil, &fault.Error{Reason: fault.Throttled, Op: "serve two at a time"}
	}
	defer r.busy.Unlock()
	time.Sleep(time.Millisecond)
	return []ocispec.Descriptor{r.attached}, r.err
}

// Evidence is large, so that few images are verified at a time. A damaged attachment of an unsigned image hides
// nothing, and a registry that fails is no maker that does not sign.
func TestAnImageIsJudgedBeforeWhatTravelsIsRead(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 41})
	key := must.Have(trust.NewKey(trust.Entry{ID: "k"}, pki.Root(t, "key").PublicPEM()))(t)
	signed := must.Have(trust.NewPolicy(1, key))(t)
	policy := must.Have(upstream.ParsePolicy("up.yaml", []byte(upstreamHeader+"rules:\n- {images: registry.test, policy: x}\n"),
		func(string) (*trust.Policy, error) { return signed, nil }))(t)
	for name, c := range map[string]struct {
		policy  *upstream.Policy
		listing error
		reason  fault.Reason
		text    string
	}{
		"unsigned":       {policy, nil, fault.Untrusted, "it has no signature"},
		"not listed":     {policy, &fault.Error{Reason: fault.Unreachable, Op: "list"}, fault.Unreachable, ", by x: list"},
		"without policy": {nil, nil, fault.Corrupt, "its schema version 0 is not 2"},
	} {
		t.Run(name, func(t *testing.T) {
			damaged := b.Store.Add(ocispec.MediaTypeImageManifest, []byte("{}"))
			from := registry{store: b.Store, attached: damaged, err: c.listing, busy: &sync.Mutex{}}
			_, err := upstream.Read(t.Context(), upstream.Input{
				Lock: b.Contents.Lock, Policy: c.policy, Carry: upstream.CarryImages,
				Registry: func(image.Reference) medium.Source { return from },
			}, run.Options{Concurrency: 1})
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "two at a time")
			require.Equal(t, c.reason == fault.Untrusted, strings.Contains(fault.HintOf(err), "did not sign"))
		})
	}
}
