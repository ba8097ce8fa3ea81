package model

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
