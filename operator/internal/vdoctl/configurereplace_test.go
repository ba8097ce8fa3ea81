package vdoctl_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Somebody may save the file while configure waits for an answer: here for a password, from a pipe.
func TestConfigureDoesNotReplaceAFileThatSomebodyHasChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "password")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	put := func(text string) {
		t.Helper()
		if text == "" {
			require.NoError(t, os.RemoveAll(file))
			return
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	run := func(meanwhile func()) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "vdoctl", "configure", "--bundle", "registry.site/vdo/drivers:1", "--server", "vc.site.example",
			"--username", vcsim.Admin.Username, "--password-file", pipe, "--no-check", "--write", file, "--yes")
		cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
			if f, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil { // nobody waits for who is gone
				_ = f.Close()
			}
		}()
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the program to open it
		require.NoError(t, err)
		meanwhile()
		_, err = w.WriteString("pw\n")
		require.NoError(t, errors.Join(err, w.Close()))
		<-ended
		return out.String(), cmd.ProcessState.ExitCode()
	}
	out, code := run(func() {})
	require.Zero(t, code, out)
	text := readFile(t, file)
	for name, c := range map[string]struct{ before, meanwhile string }{
		"made": {"", "theirs: a\n"}, "made as it would be": {"", text}, "changed": {text, text + "# theirs\n"}, "removed": {text, ""},
	} {
		put(c.before)
		out, code = run(func() { put(c.meanwhile) })
		require.Equal(t, 8, code, "%s: %s", name, out)
		if c.meanwhile == "" {
			require.NoFileExists(t, file, name)
		} else {
			require.Equal(t, c.meanwhile, readFile(t, file), name)
		}
		if !strings.HasPrefix(c.meanwhile, "theirs") { // that is no site's configuration, which is told
			require.Contains(t, out, "write "+file+": somebody has changed it since it was read", name)
			require.Contains(t, out, "hint: run the same command again", name)
		}
	}
}

// The name may be a link into a working copy. What is no file is told before anything else.
func TestConfigureWritesThroughALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repo, link := filepath.Join(dir, "repo"), filepath.Join(dir, "site.yaml")
	require.NoError(t, os.Mkdir(repo, 0o700))
	require.NoError(t, os.Symlink("repo/site.yaml", link))
	run := func(to string, more ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "vdoctl", append([]string{"configure", "--write", to}, more...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			require.NotNil(t, cmd.ProcessState, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{pipe, os.DevNull, repo} {
		out, code := run(name)
		require.Equal(t, 8, code, out)
		require.Contains(t, out, "error: write "+name+": it is no regular file\n")
		require.Contains(t, out, "hint: name another file, or - for standard output")
	}

	file := filepath.Join(repo, "site.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	out, code := run(link, "--bundle", "registry.site/vdo/drivers:1", "--server", "vc.site.example", "--username", vcsim.Admin.Username, "--no-check", "--yes")
	require.Zero(t, code, out)
	to, err := os.Readlink(link)
	require.NoError(t, err, "it is no link any more")
	require.Equal(t, "repo/site.yaml", to)
	require.Contains(t, readFile(t, file), "kind: VDOConfig")
	left, err := os.ReadDir(repo)
	require.NoError(t, err)
	require.Len(t, left, 1)
}
