package site_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
)

func TestSiteStartsAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	s, err := site.New(ctx, site.Options{Dir: t.TempDir(), Progress: os.Stderr})
	require.NoError(t, err)
	require.Equal(t, "https", s.Mirror.URL()[:5])
	s.Close()
	sessions, err := s.VCenter.SessionCount(ctx)
	require.True(t, err != nil || sessions == 0)
}
