package sipcluster

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func TestImagesOfTheBundle(t *testing.T) {
	const text = "docker.io/library/haproxy:2.8.9"
	ref, refErr := image.ParseReference(text)
	v, err := matrix.ParseVersion("2.8.9")
	require.NoError(t, errors.Join(refErr, err))
	lock := &bundle.Lock{
		Images:   []bundle.Image{{Reference: ref, Digest: image.MustDigest(digest("a"))}},
		Releases: []bundle.Release{{Driver: "haproxy", Version: v, Images: map[string]string{text: text}}},
	}
	doc := &matrix.Document{Services: []matrix.ServiceRelease{
		{ReleaseID: matrix.ReleaseID{Driver: matrix.HAProxy, Version: v}, State: matrix.LTS, Image: text},
	}}
	images := imagesOf(lock, doc, "mirror.site/vdo/services")
	got, err := images(services.LoadBalancerWorker)
	require.NoError(t, err)
	require.Equal(t, "mirror.site/vdo/services@"+digest("a"), got)
	for kind, message := range map[services.Kind]string{
		services.Auth:     "dex: the bundle holds no release of it",
		services.JumpHost: "vdo-jumphost: the bundle holds no release of it",
	} {
		_, err := images(kind)
		require.ErrorContains(t, err, message)
		require.Equal(t, fault.NotFound, fault.ReasonOf(err))
		require.NotEmpty(t, fault.HintOf(err))
	}
}

func TestBundlesThatAreUsed(t *testing.T) {
	condition := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: status, ObservedGeneration: generation, Message: "no key signed it"}}
	}
	for name, c := range map[string]struct {
		digest string
		conds  []metav1.Condition
		policy string
		reason fault.Reason
	}{
		"verified":           {digest: digest("a"), conds: condition(metav1.ConditionTrue, 2)},
		"not looked at yet":  {digest: digest("a"), reason: fault.Unreachable},
		"of an earlier spec": {digest: digest("a"), conds: condition(metav1.ConditionTrue, 1), reason: fault.Unreachable},
		"of another policy":  {digest: digest("a"), conds: condition(metav1.ConditionTrue, 2), policy: "an earlier one", reason: fault.Unreachable},
		"not known":          {digest: digest("a"), conds: condition(metav1.ConditionUnknown, 2), reason: fault.Unreachable},
		"not signed":         {digest: digest("a"), conds: condition(metav1.ConditionFalse, 2), reason: fault.Untrusted},
		"none accepted":      {conds: condition(metav1.ConditionTrue, 2), reason: fault.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}}
			b.Status.Digest, b.Status.Conditions, b.Status.VerifiedPolicy = c.digest, c.conds, cmp.Or(c.policy, "of now")
			require.Equal(t, c.reason, fault.ReasonOf(verified(b, "of now")))
		})
	}
}
