package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

func TestEachReportsTheFirstProblemsAndCountsTheOthers(t *testing.T) {
	err := run.Each(t.Context(), 8, 1000, func(i int) error { return fmt.Errorf("item %03d", i) })
	require.ErrorContains(t, err, "item 000")
	require.ErrorContains(t, err, "item 049")
	require.ErrorContains(t, err, "950 more problems are not listed")
	require.Equal(t, 50, strings.Count(err.Error(), "\n"))
}

func TestEachTellsOnceOfAHostThatCannotBeReached(t *testing.T) {
	err := run.Each(t.Context(), 8, 15, func(i int) error {
		host := []string{"a.test", "b.test"}[i/13]
		err := fault.Errorf(fault.Unreachable, "read", host, "look at "+host, "port %d is closed", i)
		return fmt.Errorf("image %d: %w", i, err)
	})
	require.Equal(t, "image 0: read a.test: port 0 is closed (and 12 more that failed alike)\n"+
		"image 13: read b.test: port 13 is closed (and 1 more that failed alike)", err.Error())
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err))
	require.Equal(t, "look at a.test", fault.HintOf(err))
}

func TestEachKeepsWhatIsNotTheSame(t *testing.T) {
	silent := errors.New("the host has been silent for too long")
	of := func(reason fault.Reason, host string) error {
		return fault.Errorf(reason, "read", host, "check "+host, "%w", silent)
	}
	for what, c := range map[string]struct {
		errs []error
		want int
	}{
		"one host":         {[]error{of(fault.Unreachable, "a"), of(fault.Unreachable, "a")}, 1},
		"one certificate":  {[]error{of(fault.CertificateInvalid, "a"), of(fault.CertificateInvalid, "a"), of(fault.CertificateInvalid, "b")}, 2},
		"two refusals":     {[]error{of(fault.Untrusted, "a"), of(fault.Untrusted, "a")}, 2},
		"two silent hosts": {[]error{of(fault.Unreachable, "a"), of(fault.Unreachable, "b")}, 2},
		"one rule": {[]error{fault.Errorf(fault.Untrusted, "", "", "h", "%w", run.Repeated(silent)),
			fault.Errorf(fault.Untrusted, "", "", "h", "%w", run.Repeated(silent))}, 1},
		"a graver one beside it": {[]error{of(fault.Unreachable, "a"),
			errors.Join(of(fault.Unreachable, "a"), of(fault.Untrusted, "a"))}, 3},
		"another second host": {[]error{errors.Join(of(fault.Unreachable, "a"), of(fault.Unreachable, "b")),
			errors.Join(of(fault.Unreachable, "a"), of(fault.Unreachable, "c"))}, 4},
	} {
		err := run.Each(t.Context(), 1, len(c.errs), func(i int) error { return c.errs[i] })
		require.Len(t, strings.Split(err.Error(), "\n"), c.want, "%s: %v", what, err)
	}
}

func TestLinesSayTenthsAndFailures(t *testing.T) {
	var out bytes.Buffer
	r := &run.Progress{Out: &out}
	r.Phase("manifests", 2, 0)
	r.Done("a", nil)
	r.Done("b", nil)
	r.Phase("pull", 2, 1000)
	r.Moved(250)
	r.Moved(-250)
	r.Moved(500)
	r.Done("layer of x", errors.New("broken"))
	r.Say("hello")
	r.Moved(500)
	r.Phase("signatures", 1, 0)
	r.Done("c", errors.New("broken"))
	require.Equal(t, `manifests: 2 items
manifests: 100%
pull: 2 items, 1.0 kB
pull: 20% (250 B of 1.0 kB)
pull: 50% (500 B of 1.0 kB)
pull: failed: layer of x
hello
pull: 100% (1.0 kB of 1.0 kB)
signatures: 1 item
signatures: failed: c
`, out.String())
}
