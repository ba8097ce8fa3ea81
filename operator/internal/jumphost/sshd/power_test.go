package sshd

import (
	"bytes"
	"context"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/redfish"
)

// A power command goes by the files in force when it speaks with the BMC, whether they
// change while it waits for a place or later.
func TestPowerFollowsTheFiles(t *testing.T) {
	data, err := jumphost.NewHostKey()
	require.NoError(t, err)
	signer, err := gossh.ParsePrivateKey(data)
	require.NoError(t, err)
	good := func() *files {
		return &files{
			config: &jumphost.Config{Hosts: []jumphost.Host{{Name: "node01"}}, Keys: []jumphost.Key{{Public: signer.PublicKey()}}},
			bmc:    &jumphost.BMC{Hosts: map[string]jumphost.BMCHost{"node01": {Address: "redfish://a", Username: "u", Password: "p"}}},
		}
	}
	for name, change := range map[string]func(*files){
		"the host is gone": func(f *files) { f.config.Hosts = nil },
		"the key is gone":  func(f *files) { f.config.Keys = nil },
		"the BMC is gone":  func(f *files) { f.bmc.Hosts = nil },
		"another BMC":      func(f *files) { f.bmc.Hosts = map[string]jumphost.BMCHost{"node01": {Address: "redfish://b"}} },
	} {
		changed := good()
		change(changed)
		server := func() (*Server, *connection) {
			s := &Server{audit: newAudit(io.Discard), power: powering{slots: make(chan struct{}, 1), busy: map[string]bool{}, running: map[*running]struct{}{}}}
			s.files.Store(good())
			return s, &connection{key: signer.PublicKey(), refusals: rate.NewLimiter(1, auditBurst)}
		}

		s, c := server()
		s.power.slots <- struct{}{}
		ended, spoke := make(chan error, 1), make(chan jumphost.BMCHost, 1)
		go func() {
			ended <- s.powered(t.Context(), c, "node01", "off", func(_ context.Context, _ *redfish.Client, _ string, bmc jumphost.BMCHost) (string, error) {
				spoke <- bmc
				return "", nil
			})
		}()
		require.Eventually(t, func() bool {
			s.power.mu.Lock()
			defer s.power.mu.Unlock()
			return maps.Equal(s.power.busy, map[string]bool{"node01": true})
		}, time.Minute, time.Millisecond, name)
		s.take(changed)
		<-s.power.slots
		if err := <-ended; err == nil {
			require.Equal(t, changed.bmc.Hosts["node01"], <-spoke, name)
			require.Equal(t, "another BMC", name)
		}
		require.Empty(t, spoke, name)

		s, c = server()
		err := s.powered(t.Context(), c, "node01", "off", func(ctx context.Context, _ *redfish.Client, _ string, _ jumphost.BMCHost) (string, error) {
			s.take(good())
			require.NoError(t, ctx.Err(), "what stays is not ended")
			s.take(changed)
			return "", ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled, name)
		require.Empty(t, s.power.running)
	}
}

// Who reads the audit lines sees where a controller's certificate was not verified.
func TestAuditTellsOfCertificatesThatAreNotVerified(t *testing.T) {
	key, err := jumphost.NewHostKey()
	require.NoError(t, err)
	signer, err := jumphost.ParseHostKey("key", key)
	require.NoError(t, err)
	for _, off := range []bool{false, true} {
		var audit bytes.Buffer
		s := &Server{audit: newAudit(&audit), power: powering{slots: make(chan struct{}, 1), busy: map[string]bool{}, running: map[*running]struct{}{}}}
		s.files.Store(&files{
			config: &jumphost.Config{Keys: []jumphost.Key{{Public: signer.PublicKey()}}, Hosts: []jumphost.Host{{Name: "node01"}}},
			bmc:    &jumphost.BMC{Hosts: map[string]jumphost.BMCHost{"node01": {Address: "redfish://b", DisableCertificateVerification: off}}},
		})
		c := &connection{key: signer.PublicKey(), refusals: rate.NewLimiter(1, auditBurst)}
		require.NoError(t, s.powered(t.Context(), c, "node01", "off", func(context.Context, *redfish.Client, string, jumphost.BMCHost) (string, error) { return "off", nil }))
		require.Equal(t, off, strings.Contains(audit.String(), `"certificateVerification":"off"`), audit.String())
	}
}
