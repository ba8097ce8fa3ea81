package driverbundle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func release(t *testing.T, driver matrix.Driver, state matrix.State, low, high string) matrix.Release {
	t.Helper()
	r := matrix.Release{ReleaseID: matrix.ReleaseID{Driver: driver}, State: state}
	r.Kubernetes.Min = must.Have(matrix.ParseMinor(low))(t)
	if high != "" {
		r.Kubernetes.Max = must.Have(matrix.ParseMinor(high))(t)
	}
	return r
}

func TestCoveredMinorsNeedBothDriversThatTheBundleHas(t *testing.T) {
	cpi := func(minor string) matrix.Release { return release(t, matrix.CPI, matrix.Current, minor, minor) }
	csi := func(low, high string) matrix.Release { return release(t, matrix.CSI, matrix.LTS, low, high) }
	gone := release(t, matrix.CSI, matrix.Withdrawn, "1.20", "1.40")
	cni := release(t, matrix.CNI, matrix.Current, "1.23", "")
	for want, in := range map[string][]matrix.Release{
		"":                      {cni},
		"1.32":                  {cpi("1.32"), cni},
		"1.32, 1.33, 1.34":      {cpi("1.34"), cpi("1.32"), cpi("1.33")},
		"1.32, 1.34":            {cpi("1.34"), cpi("1.32")},
		"1.33":                  {cpi("1.33"), cpi("1.35"), csi("1.31", "1.33")},
		"1.31, 1.32, 1.33":      {csi("1.31", "1.33"), gone},
		"1.9, 1.10, 1.11, 1.13": {csi("1.9", "1.10"), csi("1.10", "1.11"), csi("1.13", "1.13")},
		"1.31, 1.32, 1.35":      {csi("1.31", "1.32"), csi("1.35", "")},
	} {
		require.Equal(t, want, covered(in))
	}
}

func TestFreshnessAndConsent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	digest := image.DigestOf([]byte("x"))
	at := func(serial int64, expires time.Time) v1alpha1.MatrixStatus {
		return v1alpha1.MatrixStatus{Serial: serial, Expires: metav1.NewTime(expires)}
	}
	for name, c := range map[string]struct {
		matrix   v1alpha1.MatrixStatus
		accepted int64
		want     fault.Reason
	}{
		"newer":               {at(6, now.Add(time.Hour)), 4, ""},
		"same serial":         {at(5, now.Add(time.Hour)), 4, ""},
		"older":               {at(4, now.Add(time.Hour)), 4, fault.Superseded},
		"older than accepted": {at(4, now.Add(time.Hour)), 5, fault.Superseded},
		"expired":             {at(6, now), 4, fault.Expired},
		"last moment":         {at(6, now.Add(1)), 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{Status: v1alpha1.DriverBundleStatus{HighestSerial: 5, Matrix: &v1alpha1.MatrixStatus{Serial: c.accepted}}}
			err := fresh(b, digest.String(), found{matrix: c.matrix}, now)
			require.Equal(t, c.want, fault.ReasonOf(err))
			if err != nil {
				require.Contains(t, fault.HintOf(err), "spec.acceptOlder: "+digest.String())
				forget := c.want == fault.Superseded && c.accepted < 5
				require.Equal(t, forget, strings.Contains(fault.HintOf(err), "delete secret"))
			}
			b.Spec.AcceptOlder = image.DigestOf([]byte("other")).String()
			require.Equal(t, c.want, fault.ReasonOf(fresh(b, digest.String(), found{matrix: c.matrix}, now)))
			b.Spec.AcceptOlder = digest.String()
			require.NoError(t, fresh(b, digest.String(), found{matrix: c.matrix}, now))
			b.Spec.AcceptOlder, b.Status.Digest = "", digest.String()
			require.NoError(t, fresh(b, digest.String(), found{matrix: c.matrix}, now), "the accepted one")
		})
	}
}

// says is the report of an outcome: the phase, then "Type=Status Reason" of each part.
func says(r condition.Report) string {
	all := []string{string(r.Phase.State)}
	for _, c := range r.Parts {
		all = append(all, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

func TestWhatAnOutcomeMeans(t *testing.T) {
	now := time.Now()
	of := func(reason fault.Reason) error { return &fault.Error{Reason: reason, Err: errors.New("why")} }
	matrix := func(serial int64, left time.Duration) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) {
			b.Status.Digest, b.Status.HighestSerial = "sha256:a", 7
			b.Status.Matrix = &v1alpha1.MatrixStatus{Serial: serial, Expires: metav1.NewTime(now.Add(left))}
		}
	}
	accepted, kept := matrix(7, time.Hour), stored{keys: []string{"k"}}
	suspended := func(b *v1alpha1.DriverBundle) {
		accepted(b)
		b.Spec.Suspend = true
	}
	const verified, isFresh = ", Verified=True Succeeded", ", Fresh=True Succeeded"
	for name, c := range map[string]struct {
		out  outcome
		edit func(*v1alpha1.DriverBundle)
		want string
	}{
		"accepted":                     {outcome{accepted: &acceptance{}}, accepted, "Ready" + verified + isFresh},
		"the mirror is away":           {outcome{gated: kept, fault: of(fault.Unreachable)}, accepted, "Fault" + verified + isFresh},
		"no longer trusted":            {outcome{gated: stored{untrusted: of(fault.Untrusted)}, fault: of(fault.Untrusted)}, accepted, "Fault, Verified=False Untrusted" + isFresh},
		"its copy is lost":             {outcome{gated: stored{missing: of(fault.Corrupt)}, fault: of(fault.Unreachable)}, accepted, "Fault, Verified=Unknown Corrupt" + isFresh},
		"the policy cannot be read":    {outcome{blind: of(fault.NotFound), fault: of(fault.NotFound)}, accepted, "Fault, Verified=Unknown NotFound" + isFresh},
		"expired":                      {outcome{gated: kept}, matrix(7, -time.Hour), "Ready" + verified + ", Fresh=False Expired"},
		"older than one before":        {outcome{gated: kept}, matrix(6, time.Hour), "Ready" + verified + ", Fresh=False Superseded"},
		"suspended":                    {outcome{gated: kept}, suspended, "Suspended" + verified + isFresh},
		"the first one is not trusted": {outcome{fault: of(fault.Untrusted)}, nil, "Fault, Verified=False Untrusted, Fresh= "},
		"the first one is expired":     {outcome{fault: of(fault.Expired)}, nil, "Fault, Verified= , Fresh= "},
		"nothing was found out of it":  {outcome{fault: of(fault.Unreachable)}, accepted, "Fault" + isFresh},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{}
			if c.edit != nil {
				c.edit(b)
			}
			c.out.at = now
			before := b.DeepCopy()
			require.Equal(t, c.want, says(c.out.conditions(b)))
			require.Equal(t, before, b, "it only reads")
		})
	}
}

// Other tests have a moved tag followed; that the interval is kept is the reconciler's promise.
func TestTheMirrorIsAskedAtTheInterval(t *testing.T) {
	for want, spec := range map[time.Duration]v1alpha1.DriverBundleSpec{
		time.Hour:       {Interval: metav1.Duration{Duration: time.Hour}},
		defaultInterval: {},
		0:               {Interval: metav1.Duration{Duration: time.Hour}, Suspend: true},
	} {
		require.Equal(t, want, outcome{}.Next(&v1alpha1.DriverBundle{Spec: spec}).Interval)
	}
	b := v1alpha1.DriverBundle{Spec: v1alpha1.DriverBundleSpec{Suspend: true}}
	b.Status.Matrix = &v1alpha1.MatrixStatus{Expires: metav1.NewTime(time.Time{}.Add(time.Hour))}
	require.Equal(t, reconciler.Next{AtMost: time.Hour}, outcome{}.Next(&b), "Fresh has to become False")
}
