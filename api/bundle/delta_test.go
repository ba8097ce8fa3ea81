package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

var someRoot = image.DigestOf([]byte("root"))

func TestADeltaLeavesOutLayersOfImagesAndNothingElse(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	whole := b.Graph.Order()
	base := b.Graph.Without(someRoot, func(image.Digest) bool { return true })
	require.NoError(t, b.Graph.OmitFor(base))
	require.Len(t, b.Graph.Omitted(), len(base.Layers))
	require.Len(t, b.Graph.Order(), len(whole)-len(base.Layers))
	require.Len(t, b.Graph.Held(), len(b.Graph.Blobs)-len(base.Layers))
	for _, d := range b.Graph.Omitted() {
		require.Regexp(t, `layer|rootfs\.diff`, d.MediaType)
	}
	_, err := b.Graph.Contents(t.Context(), b.Store)
	require.NoError(t, err, "the contents are never left out")

	for _, d := range b.Graph.Held() { // configs, lock, matrix, manifest files
		bad := &bundle.Base{Root: someRoot, Layers: []image.Digest{image.MustDigest(d.Digest.String())}}
		require.Equal(t, fault.Corrupt, fault.ReasonOf(b.Graph.OmitFor(bad)), d.MediaType)
	}
	require.Equal(t, fault.Corrupt, fault.ReasonOf(b.Graph.OmitFor(&bundle.Base{Root: someRoot, Layers: []image.Digest{someRoot}})))
	require.NoError(t, b.Graph.OmitFor(nil))
	require.Equal(t, whole, b.Graph.Order())
	require.Nil(t, b.Graph.Without(someRoot, func(image.Digest) bool { return false }))
}

func TestAnnotationsOfADeltaAreReadStrictly(t *testing.T) {
	one, two := image.DigestOf([]byte("1")).String(), image.DigestOf([]byte("2")).String()
	if one > two {
		one, two = two, one
	}
	root := someRoot.String()
	annotations := map[string]string{
		bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: one + " " + two, "other": "x",
	}
	b := must(bundle.ParseBase(annotations))(t)
	require.Len(t, b.Layers, 2)
	b = must(bundle.ParseBase(map[string]string{"other": "x"}))(t)
	require.Nil(t, b)
	require.Nil(t, b.Annotations())
	for name, a := range map[string]map[string]string{
		"no layers":   {bundle.AnnotationBase: root},
		"empty":       {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: ""},
		"no base":     {bundle.AnnotationBaseLayers: one},
		"no digest":   {bundle.AnnotationBase: "sha256:1", bundle.AnnotationBaseLayers: one},
		"order":       {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: two + " " + one},
		"twice":       {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: one + " " + one},
		"two spaces":  {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: one + "  " + two},
		"line":        {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: one + "\n"},
		"far too big": {bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: strings.Repeat("x", 1<<24)},
	} {
		_, err := bundle.ParseBase(a)
		require.Error(t, err, name)
	}
}

func FuzzParseBase(f *testing.F) {
	f.Add(someRoot.String(), someRoot.String())
	f.Fuzz(func(t *testing.T, root, layers string) {
		in := map[string]string{bundle.AnnotationBase: root, bundle.AnnotationBaseLayers: layers}
		if b, err := bundle.ParseBase(in); err == nil {
			require.Equal(t, in, b.Annotations())
		}
	})
}

func receipt(t testing.TB) []byte {
	t.Helper()
	g := bundles.New(t, bundles.Options{Seed: 1}).Graph
	return must(bundle.NewReceipt("registry.site:5000/vdo/drivers", g).JSON())(t)
}

func TestAReceiptNamesEveryBlob(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	r := must(bundle.ParseReceipt("r", receipt(t)))(t)
	require.Len(t, r.Blobs, len(b.Graph.Blobs))
	for _, d := range b.Graph.Blobs {
		require.True(t, r.Has(image.MustDigest(d.Digest.String())))
	}
	require.False(t, r.Has(someRoot))
	require.Equal(t, b.Graph.Root.Digest.String(), r.Root.String())
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, receipt(t)))
	again, err := bundle.ParseReceipt("r", compact.Bytes())
	require.NoError(t, err, "white space is free")
	require.Equal(t, r, again)

	r.Blobs = nil
	for i := range bundle.MaxReceiptBlobs {
		digest := image.MustDigest(fmt.Sprintf("sha256:%064x", i))
		r.Blobs = append(r.Blobs, bundle.ReceiptBlob{Digest: digest, Size: bundle.MaxBlobSize})
	}
	require.Equal(t, r, must(bundle.ParseReceipt("r", must(r.JSON())(t)))(t), "the largest that is written is read")
	r.Blobs = append(r.Blobs, r.Blobs[0])
	_, err = r.JSON()
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
}

func TestReceiptsAreReadStrictly(t *testing.T) {
	good := string(receipt(t))
	first := good[strings.Index(good, `"digest": "sha256:`)+len(`"digest": "`):][:71]
	for name, data := range map[string]string{
		"other kind":    strings.Replace(good, "PushReceipt", "PullReceipt", 1),
		"other version": strings.Replace(good, "receipt/v1", "receipt/v2", 1),
		"unknown key":   strings.Replace(good, `"kind"`, `"x": 1, "kind"`, 1),
		"other case":    strings.Replace(good, `"kind"`, `"Kind"`, 1),
		"no digest":     strings.Replace(good, first, "sha256:12", 1),
		"out of order":  strings.Replace(good, first, "sha256:"+strings.Repeat("f", 64), 1),
		"negative size": strings.Replace(good, `"size": `, `"size": -`, 1),
		"tag":           strings.Replace(good, "vdo/drivers", "vdo/drivers:1", 1),
		"no repository": strings.Replace(good, "registry.site:5000/vdo/drivers", "", 1),
		"too large":     strings.Repeat(" ", bundle.MaxReceiptSize+1),
		"null blobs":    strings.SplitN(good, `"blobs"`, 2)[0] + `"blobs": null}`,
	} {
		_, err := bundle.ParseReceipt("site.receipt", []byte(data))
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
		require.Contains(t, err.Error(), "site.receipt")
		require.NotEmpty(t, fault.HintOf(err))
	}
}

func FuzzParseReceipt(f *testing.F) {
	f.Add(receipt(f))
	f.Add([]byte(`{"apiVersion":"vdo.vmware.com/receipt/v1","kind":"PushReceipt","repository":"a.b/c","root":"sha256:` + strings.Repeat("0", 64) + `","blobs":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := bundle.ParseReceipt("x", data)
		if err != nil {
			return
		}
		text := must(r.JSON())(t)
		again := must(bundle.ParseReceipt("x", text))(t)
		require.Equal(t, r, again)
	})
}
