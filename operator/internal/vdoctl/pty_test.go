package vdoctl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// onTerminal runs a program to its end on a terminal that is so many columns wide, 0 for one
// that does not know, and that answers nothing. It returns what was written to it.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) (string, int) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = master.Close() }()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	var out bytes.Buffer
	_, err = io.Copy(&out, master) // ends with EIO once nobody has the other side open
	require.ErrorIs(t, err, syscall.EIO)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		require.NoError(t, err)
		return strings.ReplaceAll(out.String(), "\r\n", "\n"), 0
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), exit.ExitCode()
}

// A terminal is asked nothing of itself: one that does not answer would hold up every command.
func TestTerminalIsNotAskedForItsColours(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"vdoctl", "version", "--client"}, {"vdoctl", "configure", "--help"}} {
		out, code := onTerminal(t, 80, nil, args...)
		require.Zero(t, code, out)
		require.NotContains(t, out, "\x1b", args)
	}
}

// Errors and hints are folded as results are, but for the commands in them, which are copied. In
// a pipe each is one line.
func TestErrorsAreNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	args := []string{"vdoctl", "matrix", "set", "https://raw.example/matrix.json"}
	piped, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `^error: [^\n]+\nhint: [^\n]+\n$`, string(piped))
	shown, code := onTerminal(t, 70, nil, args...)
	require.Equal(t, 8, code)
	require.Equal(t, strings.Fields(string(piped)), strings.Fields(shown))
	command := regexp.MustCompile("^    `[^`]+`[,;]?( and)?$")
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(line, "\n")
		require.True(t, len(line) <= 70 || command.MatchString(line), "%q\n%s", line, shown)
	}
}

// In a pipe each row of a table stays one line, and a script is the same on a terminal.
func TestRowsAndScriptsStayWhole(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	s.operator(1)
	s.upgraded()
	s.waits("r4-44444444", "cpi@1.33.1, csi@3.7.3", strings.Repeat("one reason and another, ", 9))
	s.create(&corev1.Secret{ObjectMeta: s.meta("vc"), StringData: map[string]string{"username": vcsim.Admin.Username, "password": vcsim.Admin.Password}})
	s.create(&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east"), Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: east.Host, Port: int32(east.Port), Credentials: "vc", Thumbprint: east.SHA256}})
	message := strings.Repeat("Deployment vsphere-csi-controller has 0 of 1 pods; ", 4) + "no more"
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Drivers[1].Message, st.Drivers[1].Ready = message, false
		st.Nodes = []v1alpha1.NodeStatus{{Name: "node-2", Driver: "csi", Message: message}}
		st.Conditions = []metav1.Condition{{Type: "CSIReady", Status: "False", Reason: "Unhealthy", Message: message, LastTransitionTime: metav1.Now()}}
	})
	for line, rows := range map[string][]string{
		"status":       {`driver/csi +false +- +3.5.1 Deployment .*…`},
		"describe":     {`csi     3.5.1    -       false  Deployment .* no more`, `  node-2 \(csi\): Deployment .* no more`},
		"upgrade list": {`r2-22222222 \*  cpi@1.33.1, csi@3.5.1  Healthy     \S+Z  jane         registry.site/vdo@sha256:bbbbbbbbbbbb`},
		"version":      {`vdo-operator  +registry.site/vdo/operator:1.2.3`},
		"users plan":   {`vdo-csi-vm +create +VirtualMachine.Config.AddExistingDisk VirtualMachine.Config.AddRemoveDevice.*`},
		"preflight":    {`(block|warn )   \S+.*: .*`},
	} {
		piped, _ := s.run(strings.Fields(line)...)
		for _, row := range rows {
			require.Regexp(t, `(?m)^`+row+`$`, piped, line)
		}
	}
	out, _ := onTerminal(t, 80, []string{"KUBECONFIG=" + s.conf}, "vdoctl", "users", "plan", "-o", "govc", "-n", s.ns)
	piped := s.ok("users", "plan", "-o", "govc")
	script := func(text string) string { // without what is warned of before it, of nodes of others
		_, script, ok := strings.Cut(text, "#!/bin/sh\n")
		require.True(t, ok, text)
		return script
	}
	require.Equal(t, script(piped), script(out), "a script is never folded")
}
