package userfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestFilesAreReplacedWholeAndReadBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, userfile.Write(name, []byte("one"), 0o644))
	require.NoError(t, userfile.Write(name, []byte("second"), 0o600))
	data := must.Have(userfile.Read("--x", name, 6))(t)
	require.Equal(t, "second", string(data))
	info := must.Have(os.Stat(name))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	entries := must.Have(os.ReadDir(filepath.Dir(name)))(t)
	require.Len(t, entries, 1, "nothing is left beside it")

	must.Fail(t, must.Err(userfile.Read("--x", name, 5)), fault.InvalidInput, name+": larger than 5 bytes")
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
		{"absent", func(n string) error { return must.Err(userfile.Read("--key", n, 1)) }, "read NAME: no such file or directory", fault.NotFound, "check the path given with --key"},
		{"", func(n string) error { return must.Err(userfile.Read("--key", n, 1)) }, "read NAME: is a directory", fault.Storage, "check the path given with --key"},
		{"x", func(n string) error { return userfile.Unreadable("--key", n, syscall.EACCES) }, "read NAME: permission denied", fault.Storage, "give yourself the permission there"},
		{"no/file", func(n string) error { return userfile.Write(n, nil, 0o644) }, "write NAME: no such file or directory", fault.Storage, "folders have to be there"},
		{"", func(n string) error { return userfile.Write(n, nil, 0o644) }, "write NAME: ", fault.Storage, "run the same command again"},
	} {
		name := filepath.Join(dir, c.name)
		must.Fail(t, c.do(name), c.reason, strings.Replace(c.text, "NAME", name, 1), c.hint)
	}
}

// A name that is not the user's own is no way out of the folder, nor to another file.
func TestWhatIsWrittenBelowAFolderStaysThere(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	for name, trap := range map[string]func(dir string) error{
		"a link":          func(dir string) error { return os.Symlink(victim, filepath.Join(dir, "f.sig")) },
		"a pipe":          func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "f.sig"), 0o600) },
		"a linked folder": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "sub")) },
		"nothing":         func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
			dir := t.TempDir()
			require.NoError(t, trap(dir))
			for _, file := range []string{"f.sig", "sub/f"} {
				if err := userfile.WriteBelow(dir, file, []byte("new"), 0o644); err != nil {
					require.Equal(t, fault.Storage, fault.ReasonOf(err))
					continue
				}
				data := must.Have(os.ReadFile(filepath.Join(dir, file)))(t)
				require.Equal(t, "new", string(data))
			}
			data := must.Have(os.ReadFile(victim))(t)
			require.Equal(t, "mine", string(data))
			list := must.Have(os.ReadDir(outside))(t)
			require.Len(t, list, 1)
		})
	}
}

// A key that is there is never replaced.
func TestANewFileReplacesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "k.key")
	require.NoError(t, userfile.WriteNew(name, []byte("first"), 0o600))
	require.Equal(t, fault.Conflict, fault.ReasonOf(userfile.WriteNew(name, []byte("second"), 0o600)))
}

// Who opens a pipe waits for who writes into it.
func TestPipesAndDevicesAreNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{pipe, "/dev/zero"} {
		err := must.Err(userfile.Read("--key", name, 10))
		must.Fail(t, err, fault.InvalidInput, "read "+name+": it is not a regular file")
		require.Equal(t, "give a file that is on a disk with --key", fault.HintOf(err))
	}
}

// A link goes on leading where it led, by way of other links too. One that leads to no file stays, and is
// an error.
func TestALinkIsWrittenThrough(t *testing.T) {
	for name, c := range map[string]struct {
		links map[string]string // by name
		file  string            // what is written; empty: nothing is
	}{
		"to a file":                 {map[string]string{"link": "real/file"}, "real/file"},
		"by steps":                  {map[string]string{"link": "other/second", "real/second": "../real/third", "real/third": "file"}, "real/file"},
		"through a folder, and out": {map[string]string{"link": "deep/../file"}, "real/file"}, // deep/.. is real
		"to an absolute name":       {map[string]string{"link": "DIR/real/file"}, "real/file"},
		"to nothing":                {map[string]string{"link": "real/none"}, ""},
		"to itself":                 {map[string]string{"link": "link"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "real/inner"), 0o700))
			require.NoError(t, os.Symlink("real", filepath.Join(dir, "other")))
			require.NoError(t, os.Symlink("real/inner", filepath.Join(dir, "deep")))
			for link, to := range c.links {
				require.NoError(t, os.Symlink(strings.Replace(to, "DIR", dir, 1), filepath.Join(dir, link)))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "real/file"), []byte("old"), 0o600))
			err := userfile.Write(filepath.Join(dir, "link"), []byte("new"), 0o600)
			if c.file == "" {
				require.Equal(t, fault.Storage, fault.ReasonOf(err))
				require.ErrorContains(t, err, filepath.Join(dir, "link"))
			} else {
				require.NoError(t, err)
				data := must.Have(os.ReadFile(filepath.Join(dir, c.file)))(t)
				require.Equal(t, "new", string(data))
			}
			for link := range c.links {
				info := must.Have(os.Lstat(filepath.Join(dir, link)))(t)
				require.NotZero(t, info.Mode()&os.ModeSymlink, "%s is a link still", link)
			}
		})
	}
}
