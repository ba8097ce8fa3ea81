package driverbundle

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// says is the report of an outcome: the phase, then "Type=Status Reason" of each part.
func says(r condition.Report) []string {
	all := []string{string(r.Phase.State)}
	for _, c := range r.Parts {
		all = append(all, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	return all
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
	accepted := matrix(7, time.Hour)
	for name, c := range map[string]struct {
		out  outcome
		edit func(*v1alpha1.DriverBundle)
		want []string
	}{
		"accepted":                     {outcome{accepted: &acceptance{}}, accepted, []string{"Ready", "Verified=True Succeeded", "Fresh=True Succeeded"}},
		"the same as before":           {outcome{held: held{keys: []string{"k"}}}, accepted, []string{"Ready", "Verified=True Succeeded", "Fresh=True Succeeded"}},
		"the mirror is away":           {outcome{held: held{keys: []string{"k"}}, fault: of(fault.Unreachable)}, accepted, []string{"Fault", "Verified=True Succeeded", "Fresh=True Succeeded"}},
		"no longer trusted":            {outcome{held: held{untrusted: of(fault.Untrusted)}, fault: of(fault.Untrusted)}, accepted, []string{"Fault", "Verified=False Untrusted", "Fresh=True Succeeded"}},
		"its copy is lost":             {outcome{held: held{lost: of(fault.Corrupt)}, fault: of(fault.Unreachable)}, accepted, []string{"Fault", "Verified=Unknown Corrupt", "Fresh=True Succeeded"}},
		"the policy cannot be read":    {outcome{blind: of(fault.NotFound), fault: of(fault.NotFound)}, accepted, []string{"Fault", "Verified=Unknown NotFound", "Fresh=True Succeeded"}},
		"expired":                      {outcome{held: held{keys: []string{"k"}}}, matrix(7, -time.Hour), []string{"Ready", "Verified=True Succeeded", "Fresh=False Expired"}},
		"older than one before":        {outcome{held: held{keys: []string{"k"}}}, matrix(6, time.Hour), []string{"Ready", "Verified=True Succeeded", "Fresh=False Superseded"}},
		"suspended":                    {outcome{held: held{keys: []string{"k"}}}, func(b *v1alpha1.DriverBundle) { accepted(b); b.Spec.Suspend = true }, []string{"Suspended", "Verified=True Succeeded", "Fresh=True Succeeded"}},
		"the first one is not trusted": {outcome{fault: of(fault.Untrusted)}, nil, []string{"Fault", "Verified=False Untrusted", "Fresh= "}},
		"the first one is expired":     {outcome{candidateVerified: true, fault: of(fault.Expired)}, nil, []string{"Fault", "Verified=True Succeeded", "Fresh=False Expired"}},
		"the first one cannot be read": {outcome{fault: of(fault.Unreachable)}, nil, []string{"Fault", "Fresh= "}},
		"nothing was found out of it":  {outcome{fault: of(fault.Unreachable)}, accepted, []string{"Fault", "Fresh=True Succeeded"}},
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
}
