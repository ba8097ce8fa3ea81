package services

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/sshd"
)

// The program, started as its pod starts it and with its pod's files, shows the host key
// that is kept, lets in who is authorised, and knows the tenant's hosts.
func TestJumpHostRunsWhatIsRendered(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	user, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	in := full(t)
	in.Spec.JumpHost[0].SSHAuthorizedKeys = []string{string(ssh.MarshalAuthorizedKey(user.PublicKey()))}
	set := rendered(t, in)
	jump := set.of(t, JumpHost)
	dir := t.TempDir()
	for name, data := range files(t, jump, map[string]Secret{"node-keys": in.Secrets["node-keys"]}) {
		file := filepath.Join(dir, strings.TrimPrefix(name, jumphost.Dir))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	address := freeAddress(t)
	args := strings.Join(jump.deployment(t).Spec.Template.Spec.Containers[0].Args, " ")
	args = strings.NewReplacer(" :2222", " "+address, " :8080", " "+freeAddress(t), jumphost.Dir, dir).Replace(args)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var audit, log bytes.Buffer
	go func() { ended <- sshd.Main(ctx, "", strings.Fields(args), &audit, &log) }()
	host, err := jumphost.ParseHostKey("host key", keep(t, set)[jump.Name+"-host-keys"][hostKeyFile])
	require.NoError(t, err)
	var client *ssh.Client
	require.Eventually(t, func() bool {
		client, err = ssh.Dial("tcp", address, &ssh.ClientConfig{
			User: "alice", Auth: []ssh.AuthMethod{ssh.PublicKeys(user)}, HostKeyCallback: ssh.FixedHostKey(host.PublicKey()), Timeout: patience,
		})
		return err == nil
	}, patience, 50*time.Millisecond)
	session, err := client.NewSession()
	require.NoError(t, err)
	out, err := session.Output("host list")
	require.NoError(t, err)
	require.Equal(t, "cp-0\ncp-1\nw-0\n", string(out))
	require.NoError(t, client.Close())
	stop()
	require.Zero(t, <-ended, "%s", &log)
}
