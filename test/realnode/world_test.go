package realnode

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// doomed is set, to a file, for the run that TestNothingOutlivesARun ends.
const doomed = "VDO_REALNODE_DOOMED"

// Not a test of its own: the world that the next test ends. A machine is up in it, and a
// process in its control group.
func TestDoomedWorld(t *testing.T) {
	file := os.Getenv(doomed)
	if file == "" {
		return // the next test sets it
	}
	if !Enter(t) {
		return
	}
	dir := t.TempDir()
	n := &Node{Spec: Spec{}, nodes: &Nodes{}, dir: dir, n: 1}
	n.Name = "doomed"
	require.NoError(t, os.WriteFile(n.path("machine-id"), []byte("id\n"), 0o600))
	require.NoError(t, n.startMachine(t.Context()))
	require.NoError(t, n.connect(t.Context()))
	require.NoError(t, makeGroup(n.group()))
	group := filepath.Join(controllers, "pids", n.group())
	if _, err := os.Stat(group); err != nil {
		group = filepath.Join(controllers, n.group())
	}
	pid := strconv.Itoa(n.namespaces.Process.Pid)
	require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(pid), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(group), 0o600))
	time.Sleep(time.Hour) // a program that waits for nothing at all is ended by the runtime
}

// However a run ends, its processes end with it. One that is interrupted leaves nothing else either.
func TestNothingOutlivesARun(t *testing.T) {
	tier.Later(t, tier.All)
	if why := Missing(); why != nil {
		t.Skipf("no real nodes: %v", why)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			file := filepath.Join(tmp, "up")
			cmd := exec.Command(os.Args[0], "-test.run=^TestDoomedWorld$", "-test.v")
			cmd.Env = append(os.Environ(), doomed+"="+file)
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				if t.Failed() {
					t.Logf("the run said:\n%s", &said)
				}
			})
			var group []byte
			require.NoError(t, wait(t.Context(), "the world is up", func() (err error) {
				if group, err = os.ReadFile(file); err == nil && len(group) == 0 {
					err = errors.New("empty")
				}
				return err
			}))
			pids, err := os.ReadFile(filepath.Join(string(group), "cgroup.procs"))
			require.NoError(t, err)
			require.NotEmpty(t, strings.Fields(string(pids)), "a process of the machine's, as it is seen from outside")

			require.NoError(t, cmd.Process.Signal(sig))
			require.Error(t, cmd.Wait())
			for _, pid := range strings.Fields(string(pids)) {
				require.NoError(t, wait(t.Context(), "process "+pid+" ends", func() error { return alive(pid) }))
			}
			worlds, err := filepath.Glob(filepath.Join(tmp, prefix+"*"))
			require.NoError(t, err)
			if sig == syscall.SIGKILL { // no one was left to remove it
				require.Len(t, worlds, 1)
				require.NoError(t, removeGroups(worlds[0]))
				return
			}
			require.Empty(t, worlds)
			require.NoDirExists(t, string(group))
		})
	}
}

func alive(pid string) error {
	if _, err := os.Stat(filepath.Join("/proc", pid)); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	return errors.New("still there")
}
