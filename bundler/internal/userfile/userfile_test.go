package userfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

func TestFilesAreReplacedWholeAndReadBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, userfile.Write(name, []byte("one"), 0o644))
	require.NoError(t, userfile.Write(name, []byte("second"), 0o600))
	data, err := userfile.Read("--x", name, 6)
	require.NoError(t, err)
	require.Equal(t, "second", string(data))
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")

	_, err = userfile.Read("--x", name, 5)
	require.ErrorContains(t, err, name+": larger than 5 bytes")
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
}

func TestErrorsNameTheFileOnceAndTheFlag(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		do     func(string) error
		text   string
		reason fault.Reason
		hint   string
	}{
		{"absent", func(n string) error { _, err := userfile.Read("--key", n, 1); return err }, "read NAME: no such file or directory", fault.NotFound, "check the path given with --key"},
		{"", func(n string) error { _, err := userfile.Read("--key", n, 1); return err }, "read NAME: is a directory", fault.Storage, "check the path given with --key"},
		{"no/file", func(n string) error { return userfile.Write(n, nil, 0o644) }, "write NAME: no such file or directory", fault.Storage, "has space"},
		{"", func(n string) error { return userfile.Write(n, nil, 0o644) }, "write NAME: ", fault.Storage, "has space"},
	} {
		name := filepath.Join(dir, c.name)
		err := c.do(name)
		require.Error(t, err)
		require.Contains(t, err.Error(), strings.Replace(c.text, "NAME", name, 1))
		require.Equal(t, c.reason, fault.ReasonOf(err))
		require.Contains(t, fault.HintOf(err), c.hint)
	}
}
