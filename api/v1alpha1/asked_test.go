package v1alpha1_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// What anybody may write is kept in a bounded way, and another value is another one.
func TestWhatIsAskedForIsKeptBounded(t *testing.T) {
	asked := func(value string) string {
		v := &v1alpha1.VDOConfig{}
		v.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: value}
		return v1alpha1.Asked(v, v1alpha1.AnnotationRequestedAt)
	}
	require.Empty(t, v1alpha1.Asked(&v1alpha1.VDOConfig{}, v1alpha1.AnnotationRequestedAt))
	for _, short := range []string{"2026-08-01T12:00:00Z", strings.Repeat("x", v1alpha1.MaxAsked)} {
		require.Equal(t, short, asked(short))
	}
	long := "r3-33333333 " + strings.Repeat("x", 150<<10)
	require.LessOrEqual(t, len(asked(long)), v1alpha1.MaxAsked)
	require.True(t, strings.HasPrefix(asked(long), "r3-33333333 "), "what it names is read still")
	require.NotEqual(t, asked(long), asked(long+"x"))
	require.True(t, utf8.ValidString(asked(strings.Repeat("ü", 1000)+"x")))
	require.True(t, utf8.ValidString(asked("x"+strings.Repeat("ü", 1000))))
}
