package sshd_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// Who asks learns which files are in force, when what the ones before allowed has ended.
func TestInForceFollowsTheFiles(t *testing.T) {
	w := newWorld(t)
	w.start()
	alice, err := w.client("alice")
	require.NoError(t, err)
	goes, err := alice.Dial("tcp", "node02:7000")
	require.NoError(t, err)
	require.True(t, alive(goes))
	inForce := func() string {
		answer := httptest.NewRecorder()
		w.server.Health().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, jumphost.InForcePath, nil))
		return strings.TrimSpace(answer.Body.String())
	}
	config := func() []byte {
		data, err := os.ReadFile(w.path("files/config/config.json"))
		require.NoError(t, err)
		return data
	}
	require.Equal(t, jumphost.InForce(config()), inForce())

	w.config.Hosts = w.config.Hosts[:1]
	w.writeConfig()
	want := jumphost.InForce(config())
	require.Eventually(t, func() bool { return inForce() == want }, patience, 10*time.Millisecond)
	require.True(t, ended(goes))
}
