package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// life is how many writes an operator lives for: at most in `make soak`, and where what kills it is not looked at.
const life = 7

// killedAllTheWay has the operator die after every so many writes of an installation, of an
// upgrade that fails and is gone back from, of the same upgrade once it can succeed, and of a
// removal, and another one without any memory go on.
func killedAllTheWay(t *testing.T, each int) {
	t.Helper()
	t.Logf("VDO_TEST_TIER=all VDO_TEST_WRITES=%d", each)
	scene(t, nothing, func(s *scenario) {
		s.killed(each, "installation", func() { s.ready() })
		s.peace(true)
		if !tier.Open(tier.All) {
			return
		}
		before, failing := s.templates(), ""
		s.killed(each, "an upgrade that is gone back from", func() {
			was := s.healthy()
			s.falls, s.back = func(_ workload, template string) bool { return !before[template] }, true
			s.configure(func(spec *asked) {
				deadline := metav1.Duration{Duration: 5 * time.Minute}
				spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: deadline}
			})
			s.retag(bundleNewer)
			s.until("it is gone back from", func() bool {
				failing = first(s.v.Status.Revisions, func(r v1alpha1.RevisionStatus) bool {
					return r.Group == "csi" && r.Outcome == string(revision.RolledBack)
				}).Name
				return failing != "" && s.isHealthy(was)
			})
		})
		s.peace(false)
		require.Equal(t, before, s.templates(), "each workload is what it was")
		s.falls, s.back = nil, false
		s.killed(each, "the upgrade once more", func() {
			s.change(s.v, func() {
				s.v.Annotations = map[string]string{v1alpha1.AnnotationRetry: s.v.Status.Candidate.Name}
			})
			s.until("it is tried again", func() bool { return s.isHealthy(failing) })
		})
		s.peace(true)
		s.killed(each, "removal", s.deleted)
		s.removed()
	})
}

// killed has a step happen while each operator dies once the API server has taken so many of its writes, and gets
// nothing through any more. With lives of one write, there is no place between two writes at which none was killed.
func (s *scenario) killed(each int, name string, step func()) {
	s.t.Helper()
	_, writes := s.wire.written(0)
	deaths, repeated := s.wire.deaths, s.wire.repeated
	s.wire.live(each)
	step()
	s.wire.live(0)
	_, now := s.wire.written(0)
	writes, deaths, repeated = now-writes, s.wire.deaths-deaths, s.wire.repeated-repeated
	s.t.Logf("%s: killed after %d of %d writes, of which %d only repeat what the one before was killed after",
		name, deaths, writes, repeated)
	if each == 1 {
		require.Equal(s.t, writes, deaths+repeated, name)
	}
	require.Greater(s.t, deaths*each, 10, name)
}
