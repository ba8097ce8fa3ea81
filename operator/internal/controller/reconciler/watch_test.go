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
	r, now := NewRefusals(), time.Now()
	r.note(errors.New("the connection broke"), now)
	require.NoError(t, r.Err(now))
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))
	note := func(after time.Duration) error {
		now = now.Add(after)
		r.note(fmt.Errorf("failed to list Secret: %w", refused), now)
		return r.Err(now)
	}
	for range 2 { // each after a restart of an API server
		require.NoError(t, note(refusalLasts+time.Second))
		require.NoError(t, note(10*time.Second))
	}
	require.Empty(t, r.Reported())
	for range 2 {
		require.Equal(t, fault.Forbidden, fault.ReasonOf(note(time.Second)))
	}
	require.Len(t, r.Reported(), 1, "a refusal that is repeated is no news")
	require.EqualError(t, r.Err(now), "watch what is installed: may not list or watch secrets")
	require.NoError(t, r.Err(now.Add(refusalLasts+time.Second)))
	require.NoError(t, (*Refusals)(nil).Err(now))
}
