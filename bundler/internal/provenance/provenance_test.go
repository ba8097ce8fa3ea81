package provenance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// A statement is of one lock: each thing that it says otherwise is named.
func TestAStatementIsHeldAgainstTheLock(t *testing.T) {
	lock := bundles.New(t, bundles.Options{Seed: 1}).Contents.Lock
	other := bundles.New(t, bundles.Options{Seed: 2}).Contents.Lock
	build := func(lock *bundle.Lock) Statement {
		s, err := New(lock, Builder{}, time.Unix(0, 0), make([]Image, len(lock.Images)))
		require.NoError(t, err)
		return s
	}
	for name, c := range map[string]struct {
		change func(*Definition)
		want   string
	}{
		"as it was built":  {func(*Definition) {}, ""},
		"of another lock":  {func(d *Definition) { *d = build(other).BuildDefinition }, "its lock: expected sha256:"},
		"of another build": {func(d *Definition) { d.BuildType = "https://else.example" }, `it is of a build of type "https://else.example"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := build(lock)
			c.change(&s.BuildDefinition)
			if err := s.Fits(lock); c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
