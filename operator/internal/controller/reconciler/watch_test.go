package reconciler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestARefusedWatchIsToldUntilItIsNotRefusedAgain(t *testing.T) {
	r, now, version := NewRefusals(), time.Now(), "7"
	current := func() string { return version }
	r.note(errors.New("the connection broke"), now, current)
	require.NoError(t, r.Err(now))
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))
	for range 2 {
		r.note(fmt.Errorf("failed to list Secret: %w", refused), now, current)
	}
	require.Len(t, r.Reported(), 1, "a refusal that is repeated is no news")
	require.Equal(t, fault.Forbidden, fault.ReasonOf(r.Err(now)))
	require.ErrorContains(t, r.Err(now), "secrets is forbidden: no right")
	require.NoError(t, r.Err(now.Add(refusalLasts+time.Second)))
	r.note(refused, now, current)
	version = "8"
	require.NoError(t, r.Err(now), "the watch goes on, as after an API server's start")
	require.NoError(t, (*Refusals)(nil).Err(now))
}
