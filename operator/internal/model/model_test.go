package model

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	cluster.Main(m, func() {
		if shared != nil {
			shared.vc.Close()
			_ = shared.Registry.Close()
		}
	})
}

const length = 12 // events of a program, passes not counted

// suite is how programs are made, and where they run.
func suite(s *site) random.Suite[event] {
	return random.Suite[event]{Draw: draw, Runs: []func(program) error{s.run}}
}

// An operator that dies after its writes converges. The tier all kills it after every single one, and amid upgrades
// and a removal too; make soak kills it after each other number as well.
func TestKilledAfterWrites(t *testing.T) {
	each := int(random.Number(t, "VDO_TEST_WRITES", tier.Pick[uint64](life, 1))) //nolint:gosec // small
	killedAllTheWay(t, each)
	for each++; each <= life && os.Getenv("VDO_TEST_DURATION") != ""; each++ {
		killedAllTheWay(t, each)
	}
}

// Drawn programs keep every promise.
func TestRandomPrograms(t *testing.T) {
	tier.Later(t, tier.Peers)
	suite(newSite(t)).Check(t, 1)
}

// Programs that once failed keep every promise.
func TestKnownPrograms(t *testing.T) {
	for _, name := range tier.Pick([]string{"unseen"}, []string{"configs", "credentials", "unseen"}) {
		t.Run(name, func(t *testing.T) { suite(newSite(t)).CheckFile(t, "testdata/"+name+".txt") })
	}
}

// An API server that refuses in all the ways that it has breaks no promise.
func TestRefusals(t *testing.T) {
	tier.Later(t, tier.Peers)
	suite(newSite(t)).CheckFile(t, "testdata/refusals.txt")
}

// newSite returns the site that all tests share.
func newSite(t *testing.T) *site {
	if shared == nil {
		s := deliver(t)
		var err error
		s.vc, err = vcsim.Run(vcsim.Options{})
		require.NoError(t, err)
		s.cfg = cluster.Config(t)
		shared = s
	}
	return shared
}

// shared is that site.
var shared *site

// event is one thing that happens: data, so that programs can be printed and read.
type event struct {
	Kind string `json:"event"`
	Arg  string `json:"arg"`
	// At, where it is not 0, holds the event back until that request of the next pass
	// to the API server.
	At int `json:"at,omitempty"`
}

// program is a list of events.
type program = random.Program[event]

// kind is a sort of events.
type kind struct {
	name   string
	weight int
	args   []string
	// anywhere is set where it may happen in the middle of a pass.
	anywhere bool
	do       func(w *world, arg string)
}

// interruption is the kind whose events happen to a request.
const interruption = "API server"

// longestPass is how many requests of a pass events are put between.
const longestPass = 160

// draw makes a program. Passes come between its events, as a manager would start them:
// sometimes one, sometimes all, sometimes none.
func draw(r *rand.Rand) program {
	p := program{{Kind: "begin", Arg: pick(r, kindOf("begin").args)}}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for range length {
		n := r.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n >= 0 {
				continue
			}
			e := event{Kind: k.name, Arg: pick(r, k.args)}
			if k.name == interruption || (k.anywhere && r.IntN(6) == 0) {
				e.At = 1 + r.IntN(longestPass)
			}
			p = append(p, e)
			break
		}
		switch r.IntN(10) {
		case 0, 1, 2:
			p = append(p, event{Kind: "pass", Arg: "drivers"})
		case 3:
			p = append(p, event{Kind: "pass", Arg: pick(r, []string{"vcenter", "bundle"})}, event{Kind: "pass", Arg: "drivers"})
		case 4, 5:
			p = append(p, event{Kind: "settle", Arg: "all"})
		case 6:
			p = append(p, event{Kind: "peace", Arg: "four intervals"})
		}
	}
	return p
}

func pick(r *rand.Rand, all []string) string { return all[r.IntN(len(all))] }

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
