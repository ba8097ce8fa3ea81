package run_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

func TestEachReportsTheFirstProblemsAndCountsTheOthers(t *testing.T) {
	err := run.Each(t.Context(), 8, 1000, func(i int) error { return fmt.Errorf("item %03d", i) })
	require.ErrorContains(t, err, "item 000")
	require.ErrorContains(t, err, "item 049")
	require.ErrorContains(t, err, "950 more problems are not listed")
	require.Equal(t, 50, strings.Count(err.Error(), "\n"))
}
