package services

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Where the cluster assigns users and refuses others pods name none, and are no root all the
// same; elsewhere they name one, since images name theirs by a word.
func TestUsersOfPods(t *testing.T) {
	for _, assigns := range []bool{false, true} {
		in := full(t)
		in.AssignsUsers = assigns
		for _, s := range rendered(t, in).Services {
			pod := s.deployment(t).Spec.Template.Spec
			context := pod.SecurityContext
			for _, id := range []*int64{context.RunAsUser, context.RunAsGroup, context.FSGroup} {
				require.Equal(t, assigns, id == nil, s.Name)
			}
			require.True(t, *context.RunAsNonRoot, s.Name)
			require.Nil(t, pod.Containers[0].SecurityContext.RunAsUser, s.Name)
			require.True(t, *pod.Containers[0].SecurityContext.RunAsNonRoot, s.Name)
		}
	}
}
