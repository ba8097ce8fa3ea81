package image_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

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
