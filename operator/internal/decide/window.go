package decide

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // the operator's image has no time zones

	"github.com/robfig/cron/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Window is a recurring time at which upgrades may start. Only [ParseWindow] returns one that ever opens.
type Window struct {
	schedule cron.Schedule
	lasts    time.Duration
	zone     *time.Location
}

// ParseWindow parses a window of a VDOConfig. Its errors are faults.
func ParseWindow(w v1alpha1.UpgradeWindow) (Window, error) {
	bad := func(err error) (Window, error) {
		return Window{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: fmt.Sprintf("spec.upgradePolicy.windows: %q", w.Schedule), Err: err,
			Hint: "write minute hour day-of-month month day-of-week, such as 0 2 * * 6, and a time zone such as Europe/Berlin",
		}
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return bad(err)
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(w.Schedule)
	switch {
	case err != nil:
		return bad(err)
	case w.Duration.Duration <= 0:
		return bad(errors.New("it has no duration"))
	}
	return Window{schedule: schedule, lasts: w.Duration.Duration, zone: zone}, nil
}

// Open reports whether the window is open. A window that opens again while open is extended.
func (w Window) Open(now time.Time) bool {
	if w.schedule == nil {
		return false
	}
	opened := w.schedule.Next(now.In(w.zone).Add(-w.lasts))
	return !opened.IsZero() && !opened.After(now)
}

// Next returns when the window opens next, the zero time if never.
func (w Window) Next(now time.Time) time.Time {
	if w.schedule == nil {
		return time.Time{}
	}
	return w.schedule.Next(now.In(w.zone))
}
