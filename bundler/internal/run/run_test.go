package run_test

import (
	"errors"
	"fmt"
	"net"
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
		dns := &net.DNSError{Err: "no such host", Name: []string{"a.test", "b.test"}[i/13], Server: fmt.Sprint(i)}
		return fmt.Errorf("image %d: %w", i, fault.Errorf(fault.Unreachable, "read", fmt.Sprint(i), "look", "%w", dns))
	})
	require.Equal(t, "image 0: read 0: lookup a.test on 0: no such host (and 12 more that failed alike)\n"+
		"image 13: read 13: lookup b.test on 13: no such host (and 1 more that failed alike)", err.Error())
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err))
	require.Equal(t, "look", fault.HintOf(err))
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
		"two silent hosts": {[]error{of(fault.Unreachable, "a"), of(fault.Unreachable, "b")}, 2},
		"a graver one beside it": {[]error{of(fault.Unreachable, "a"),
			errors.Join(of(fault.Unreachable, "a"), of(fault.Untrusted, "a"))}, 3},
		"another second host": {[]error{errors.Join(of(fault.Unreachable, "a"), of(fault.Unreachable, "b")),
			errors.Join(of(fault.Unreachable, "a"), of(fault.Unreachable, "c"))}, 4},
	} {
		err := run.Each(t.Context(), 1, len(c.errs), func(i int) error { return c.errs[i] })
		require.Len(t, strings.Split(err.Error(), "\n"), c.want, "%s: %v", what, err)
	}
}
