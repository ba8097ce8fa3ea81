package driverbundle

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func release(t *testing.T, driver matrix.Driver, state matrix.State, low, high string) matrix.Release {
	t.Helper()
	r := matrix.Release{ReleaseID: matrix.ReleaseID{Driver: driver}, State: state}
	var err error
	r.Kubernetes.Min, err = matrix.ParseMinor(low)
	require.NoError(t, err)
	if high != "" {
		r.Kubernetes.Max, err = matrix.ParseMinor(high)
		require.NoError(t, err)
	}
	return r
}

func TestCoveredMinorsNeedBothDriversThatTheBundleHas(t *testing.T) {
	cpi := func(minor string) matrix.Release { return release(t, matrix.CPI, matrix.Current, minor, minor) }
	csi := func(low, high string) matrix.Release { return release(t, matrix.CSI, matrix.LTS, low, high) }
	gone := release(t, matrix.CSI, matrix.Withdrawn, "1.20", "1.40")
	cni := release(t, matrix.CNI, matrix.Current, "1.23", "")
	for want, in := range map[string][]matrix.Release{
		"":                {cni},
		"1.32":            {cpi("1.32"), cni},
		"1.32-1.34":       {cpi("1.34"), cpi("1.32"), cpi("1.33")},
		"1.32, 1.34":      {cpi("1.34"), cpi("1.32")},
		"1.33":            {cpi("1.33"), cpi("1.35"), csi("1.31", "1.33")},
		"1.31-1.33":       {csi("1.31", "1.33"), gone},
		"1.9-1.11, 1.13":  {csi("1.9", "1.10"), csi("1.10", "1.11"), csi("1.13", "1.13")},
		"1.31-1.32, 1.35": {csi("1.31", "1.32"), csi("1.35", "")},
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
		matrix v1alpha1.MatrixStatus
		want   fault.Reason
	}{
		"newer":       {at(6, now.Add(time.Hour)), ""},
		"same serial": {at(5, now.Add(time.Hour)), ""},
		"older":       {at(4, now.Add(time.Hour)), fault.Superseded},
		"expired":     {at(6, now), fault.Expired},
		"last moment": {at(6, now.Add(1)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{Status: v1alpha1.DriverBundleStatus{HighestSerial: 5}}
			err := fresh(b, digest, found{matrix: c.matrix}, now)
			require.Equal(t, c.want, fault.ReasonOf(err))
			if err != nil {
				require.Contains(t, fault.HintOf(err), "spec.acceptOlder: "+digest.String())
			}
			b.Spec.AcceptOlder = image.DigestOf([]byte("other")).String()
			require.Equal(t, c.want, fault.ReasonOf(fresh(b, digest, found{matrix: c.matrix}, now)))
			b.Spec.AcceptOlder = digest.String()
			require.NoError(t, fresh(b, digest, found{matrix: c.matrix}, now))
			b.Spec.AcceptOlder, b.Status.Digest = "", digest.String()
			require.NoError(t, fresh(b, digest, found{matrix: c.matrix}, now), "the accepted one")
		})
	}
}

func TestStepsBackUnderTheSameMatrix(t *testing.T) {
	releases := func(ids ...string) (out []v1alpha1.ReleaseStatus) {
		for _, id := range ids {
			id, withdrawn := strings.CutSuffix(id, "!")
			driver, version, _ := strings.Cut(id, "@")
			r := v1alpha1.ReleaseStatus{Driver: driver, Version: version, State: string(matrix.Current)}
			if withdrawn {
				r.State = string(matrix.Withdrawn)
			}
			out = append(out, r)
		}
		return out
	}
	for name, c := range map[string]struct{ accepted, candidate, want []string }{
		"the same":                         {[]string{"csi@3.5.1"}, []string{"csi@3.5.1"}, nil},
		"newer":                            {[]string{"csi@3.5.1"}, []string{"csi@3.7.3"}, nil},
		"older":                            {[]string{"csi@3.7.3"}, []string{"csi@3.5.1"}, []string{"csi@3.5.1 for 3.7.3"}},
		"older patch":                      {[]string{"csi@3.5.1"}, []string{"csi@3.5.0"}, []string{"csi@3.5.0 for 3.5.1"}},
		"older within an older minor":      {[]string{"csi@3.3.1", "csi@3.7.3"}, []string{"csi@3.3.0", "csi@3.7.3"}, []string{"csi@3.3.0 for 3.3.1"}},
		"one older, another newer":         {[]string{"cpi@1.33.0", "csi@3.7.3"}, []string{"cpi@1.33.1", "csi@3.5.1"}, nil},
		"two older":                        {[]string{"cpi@1.34.0", "csi@3.7.3"}, []string{"cpi@1.33.1", "csi@3.5.1"}, []string{"cpi@1.33.1 for 1.34.0", "csi@3.5.1 for 3.7.3"}},
		"a driver more does not hide it":   {[]string{"csi@3.7.3"}, []string{"cni@2.0.0", "csi@3.5.1"}, []string{"csi@3.5.1 for 3.7.3"}},
		"a minor more, and no other lower": {[]string{"csi@3.7.3"}, []string{"csi@3.5.1", "csi@3.7.3"}, nil},
		"another selection":                {[]string{"cpi@1.33.1"}, []string{"csi@3.5.1"}, nil},
		"nothing accepted":                 {nil, []string{"csi@3.5.1"}, nil},
		"leaving a withdrawn release":      {[]string{"csi@3.7.0!", "csi@3.5.1"}, []string{"csi@3.5.1"}, nil},
		"a withdrawn one is not newer":     {[]string{"csi@3.5.1"}, []string{"csi@3.7.0!", "csi@3.5.0"}, []string{"csi@3.5.0 for 3.5.1"}},
		"a candidate of its release":       {[]string{"csi@3.5.1"}, []string{"csi@3.5.1-rc.1"}, []string{"csi@3.5.1-rc.1 for 3.5.1"}},
		"versions that cannot be read":     {[]string{"csi@new"}, []string{"csi@old"}, nil},
	} {
		require.Equal(t, c.want, stepsBack(releases(c.accepted...), releases(c.candidate...)), name)
	}
}
