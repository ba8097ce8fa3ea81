package vdoconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// A pass that changes something is told in one line for each driver: an upgrade has some
// sixty objects, and whoever reads the log wants to know of one upgrade. A repair has a line of
// its own, since each is something that somebody did; all other objects are told at verbosity 1.

// change is what was done to objects of one driver for one reason.
type change struct {
	driver  matrix.Driver
	release string
	cause   plan.Cause
	action  plan.Action
}

// logStep tells of one object.
func (p *pass) logStep(ctx context.Context, s plan.Step) {
	logger := log.FromContext(ctx)
	if s.Cause != plan.Drift {
		logger = logger.V(1)
	}
	logger.Info("changed", "object", s.Key.String(), "action", s.Action, "driver", s.Driver, "release", s.Release, "cause", s.Cause, "reason", s.Reason)
	if p.outcome.changes == nil {
		p.outcome.changes = map[change]int{}
	}
	c := change{driver: s.Driver, release: s.Release, cause: s.Cause, action: s.Action}
	if s.Action == plan.Prune {
		c.release, c.cause = "", ""
	}
	p.outcome.changes[c]++
}

// logChanges tells what a pass did, a line for each driver and the mirror set, and what the next step waits for.
func (p *pass) logChanges(ctx context.Context) {
	for _, d := range append([]matrix.Driver{drivers.MirrorSet}, inOrder...) {
		var parts, releases []string
		for c, n := range p.outcome.changes {
			if c.driver != d {
				continue
			}
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %d %s", c.action, n, why(c.cause))))
			if c.release != "" && !slices.Contains(releases, c.release) {
				releases = append(releases, c.release)
			}
		}
		if len(parts) == 0 {
			continue
		}
		slices.Sort(parts)
		slices.Sort(releases)
		log.FromContext(ctx).Info("applied", "driver", d, "release", strings.Join(releases, ", "), "objects", strings.Join(parts, ", "), "waitingFor", p.outcome.gate)
	}
}

func why(c plan.Cause) string {
	if c == "" {
		return ""
	}
	return "(" + string(c) + ")"
}
