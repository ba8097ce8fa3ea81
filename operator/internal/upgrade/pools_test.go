package upgrade_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// Nodes have taken a mirror set up once the Machine Config Operator had time to see it and each pool
// has what it is to have. The deadline of an upgrade waits for what ends by itself alone.
func TestPoolsThatTakeUpAMirrorSetAreWaitedFor(t *testing.T) {
	const set = "ImageDigestMirrorSet vdo-operator"
	has := upgrade.Pool{Name: "master", Target: "a", Has: "a", Updated: true, Updates: 3, Nodes: 3}
	with := func(edit func(p *upgrade.Pool)) upgrade.Pool {
		p := has
		p.Name = "worker"
		edit(&p)
		return p
	}
	rolls := with(func(p *upgrade.Pool) { p.Target, p.Updated, p.Updates = "b", false, 1 })
	paused, degraded := rolls, rolls
	paused.Paused, degraded.Degraded, degraded.Why = true, true, strings.Repeat("é", 200)
	const not = "not all nodes have taken up " + set + ": MachineConfigPool worker "
	for name, c := range map[string]struct {
		ago   time.Duration
		pools []upgrade.Pool
		want  string
		rolls bool
	}{
		"there are none":          {ago: time.Hour},
		"all have it":             {ago: 5 * time.Minute, pools: []upgrade.Pool{has}},
		"it was just written":     {ago: 299 * time.Second, pools: []upgrade.Pool{has}, want: set + " was written at 2026-01-03T00:55:01Z, and OpenShift is given until 2026-01-03T01:00:01Z to begin with it", rolls: true},
		"a clock is behind":       {ago: -4 * time.Minute, want: set + " was written at 2026-01-03T01:04:00Z, and OpenShift is given until 2026-01-03T01:09:00Z to begin with it", rolls: true},
		"a clock is wrong":        {ago: -time.Hour},
		"one gets it":             {ago: time.Hour, pools: []upgrade.Pool{has, rolls}, want: not + "(1 of 3 nodes updated)", rolls: true},
		"it is behind of its own": {ago: time.Hour, pools: []upgrade.Pool{with(func(p *upgrade.Pool) { p.Updated = false })}, want: not + "(3 of 3 nodes updated)"},
		"one is paused":           {ago: time.Hour, pools: []upgrade.Pool{paused}, want: not + "(paused: its nodes take nothing up)"},
		"it is, and has it":       {ago: time.Hour, pools: []upgrade.Pool{with(func(p *upgrade.Pool) { p.Paused = true })}},
		"one is degraded":         {ago: time.Hour, pools: []upgrade.Pool{degraded}, want: not + "(degraded: " + strings.Repeat("é", 80) + ")"},
		"nothing can be rendered": {ago: time.Hour, pools: []upgrade.Pool{with(func(p *upgrade.Pool) { p.Degraded = true })}, want: not + "(degraded)"},
	} {
		require.Equal(t, c.want, upgrade.PoolsChange(set, t0.Add(-c.ago), c.pools, t0), name)
		require.Equal(t, c.rolls, upgrade.PoolsRoll(t0.Add(-c.ago), c.pools, t0), name)
	}
}
