package sipcluster

import (
	"cmp"
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

// aLock has three releases of HAProxy, of which the matrix has withdrawn the newest.
func aLock(t *testing.T) (*bundle.Lock, *matrix.Document) {
	t.Helper()
	lock, doc := &bundle.Lock{}, &matrix.Document{}
	for version, d := range map[string]string{"2.8.9": "a", "2.8.10": "b", "2.8.11": "c"} {
		text := "docker.io/library/haproxy:" + version
		ref, err := image.ParseReference(text)
		require.NoError(t, err)
		v, err := matrix.ParseVersion(version)
		require.NoError(t, err)
		lock.Images = append(lock.Images, bundle.Image{Reference: ref, Digest: image.MustDigest(digest(d))})
		lock.Releases = append(lock.Releases, bundle.Release{Driver: "haproxy", Version: v, Images: map[string]string{text: text}})
		state := matrix.LTS
		if d == "c" {
			state = matrix.Withdrawn
		}
		doc.Services = append(doc.Services, matrix.ServiceRelease{ReleaseID: matrix.ReleaseID{Driver: matrix.HAProxy, Version: v}, State: state, Image: text})
	}
	lock.Sort()
	return lock, doc
}

func TestImagesOfTheBundle(t *testing.T) {
	const at = "mirror.site/vdo/services@"
	for name, c := range map[string]struct {
		kind    services.Kind
		asked   string
		other   bool
		want    string
		reason  fault.Reason
		message string
	}{
		"the newest, not withdrawn": {kind: services.LoadBalancerWorker, want: at + digest("b")},
		"named as upstream":         {kind: services.LoadBalancerWorker, asked: "docker.io/library/haproxy:2.8.9", want: at + digest("a")},
		"named in short":            {kind: services.LoadBalancerWorker, asked: "haproxy:2.8.9", want: at + digest("a")},
		"named at the mirror":       {kind: services.LoadBalancerWorker, asked: at + digest("a"), want: at + digest("a")},
		"not in the bundle":         {kind: services.LoadBalancerWorker, asked: "haproxy:2.3.2", reason: fault.Refused, message: "haproxy:2.3.2: it is not in the bundle"},
		"another, where allowed":    {kind: services.LoadBalancerWorker, asked: "haproxy:2.3.2", other: true, want: "haproxy:2.3.2"},
		"no release of a service":   {kind: services.Auth, reason: fault.NotFound, message: "dex: the bundle holds no release of it"},
		"and of the jump host":      {kind: services.JumpHost, other: true, reason: fault.NotFound, message: "vdo-jumphost: the bundle holds no release of it"},
	} {
		t.Run(name, func(t *testing.T) {
			lock, doc := aLock(t)
			l := &locked{lock: lock, matrix: doc, repository: "mirror.site/vdo/services", other: c.other}
			got, err := l.Image(c.kind, c.asked)
			require.Equal(t, c.want, got)
			require.Equal(t, c.reason, fault.ReasonOf(err))
			if c.message != "" {
				require.ErrorContains(t, err, c.message)
				require.NotEmpty(t, fault.HintOf(err))
			}
		})
	}
}

// Only a bundle that is verified under the policy of now is used.
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
		"not looked at yet":  {digest: digest("a"), reason: fault.Incomplete},
		"of an earlier spec": {digest: digest("a"), conds: condition(metav1.ConditionTrue, 1), reason: fault.Incomplete},
		"of another policy":  {digest: digest("a"), conds: condition(metav1.ConditionTrue, 2), policy: "an earlier one", reason: fault.Incomplete},
		"not known":          {digest: digest("a"), conds: condition(metav1.ConditionUnknown, 2), reason: fault.Incomplete},
		"not signed":         {digest: digest("a"), conds: condition(metav1.ConditionFalse, 2), reason: fault.Untrusted},
		"none accepted":      {conds: condition(metav1.ConditionTrue, 2), reason: fault.Incomplete},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}}
			b.Status.Digest, b.Status.Conditions, b.Status.VerifiedPolicy = c.digest, c.conds, cmp.Or(c.policy, "of now")
			require.Equal(t, c.reason, fault.ReasonOf(verified(b, "of now")))
		})
	}
}
