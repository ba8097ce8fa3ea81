package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// stoppedSplit leaves what a split leaves that is stopped once its list is written. It
// returns where the parts belong.
func stoppedSplit(t *testing.T, b *bundles.Bundle, o Options) string {
	t.Helper()
	made := inParts(t, b, o)
	l, err := readParts(made)
	require.NoError(t, err)
	tar := filepath.Join(t.TempDir(), l.File())
	for i := range l.All() {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(tar), l.Name(i))+splitSuffix, read(t, filepath.Join(filepath.Dir(made), l.Name(i))), 0o600))
	}
	require.NoError(t, os.WriteFile(tar+parts.Suffix+splitSuffix, l.Text(), 0o600))
	return tar
}

// A split that was stopped is completed by the next one; that this one may replace its own
// does not let it replace what another command made.
func TestCompletingASplitReplacesNothingOfAnotherOne(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 230}), bundles.New(t, bundles.Options{Seed: 231})
	whole, strange := written(t, b), written(t, other)
	o := Options{VolumeSize: 30_000, Recovery: 1}

	tar := stoppedSplit(t, b, o)
	_, err := Split(t.Context(), strange, tar, o)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.Contains(t, fault.HintOf(err), "--replace")
	require.NoError(t, verifyPath(t.Context(), tar+parts.Suffix), "the first one is complete")
	require.True(t, bytes.Equal(read(t, whole), cat(t, tar+parts.Suffix)))
	_, err = Split(t.Context(), whole, tar, Options{VolumeSize: 40_000})
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "nor is it cut otherwise")
	o.Replace = true
	_, err = Split(t.Context(), strange, tar, o)
	require.NoError(t, err)
	require.True(t, bytes.Equal(read(t, strange), cat(t, tar+parts.Suffix)))
}

func TestTheSameSplitGoesOnWithoutReplacing(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 232})
	whole := written(t, b)
	o := Options{VolumeSize: 30_000, Recovery: 1}
	for name, damage := range map[string]func(tar string){
		"whole": func(string) {},
		"a part that the disk has lost": func(tar string) {
			data := read(t, tar+".002"+splitSuffix)
			data[100] ^= 1
			require.NoError(t, os.WriteFile(tar+".002"+splitSuffix, data, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tar := stoppedSplit(t, b, o)
			damage(tar)
			_, err := Split(t.Context(), whole, tar, o)
			require.NoError(t, err)
			require.True(t, bytes.Equal(read(t, whole), cat(t, tar+parts.Suffix)))
			r, err := Repair(t.Context(), tar+parts.Suffix, true)
			require.NoError(t, err)
			require.Len(t, mustList(t, filepath.Dir(tar)), r.Parts+1)
			_, err = Split(t.Context(), whole, tar, o)
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "it is there, and was not interrupted")
		})
	}
}

// Whoever writes parts has the lock of their archive, whatever name the parts file has.
func TestARenamedPartsFileHasTheLockOfItsParts(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 233})
	path := inParts(t, b, Options{VolumeSize: 30_000, Recovery: 1})
	renamed := filepath.Join(filepath.Dir(path), "other"+parts.Suffix)
	require.NoError(t, os.Rename(path, renamed))
	dir, name, err := folderOf(strings.TrimSuffix(path, parts.Suffix))
	require.NoError(t, err)
	lock, err := dir.lockArchive(name)
	require.NoError(t, err)
	before := contents(t, filepath.Dir(path))
	damaged := strings.TrimSuffix(path, parts.Suffix) + ".002"

	f, err := OpenFile(renamed)
	require.NoError(t, err)
	defer f.Close()
	sig := bundles.Signature(t, rootOf(b), 1)
	err = f.Attach(t.Context(), sig)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "another process is writing it")
	require.Equal(t, before, contents(t, filepath.Dir(path)))
	require.NoError(t, os.Remove(damaged))
	_, err = Repair(t.Context(), renamed, false)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.NoFileExists(t, damaged)

	require.NoError(t, errors.Join(lock.release(), dir.close()))
	_, err = Repair(t.Context(), renamed, false)
	require.NoError(t, err)
	require.NoError(t, f.Attach(t.Context(), sig))
	require.NoError(t, verifyPath(t.Context(), renamed))
	require.NoFileExists(t, filepath.Join(filepath.Dir(path), "other"+journalSuffix))
}

// Parts that were carried here on a medium that nobody may write to are looked at there.
func TestRepairLooksAtAReadOnlyMedium(t *testing.T) {
	made := inParts(t, bundles.New(t, bundles.Options{Seed: 234}), Options{VolumeSize: 30_000, Recovery: 1})
	for name, damage := range map[string]func(dir string){
		"whole":       func(string) {},
		"one lost":    func(dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "b.tar.002"))) },
		"interrupted": func(dir string) { changingList(t, filepath.Join(dir, "b.tar.parts")) },
		"too many lost": func(dir string) {
			require.NoError(t, errors.Join(os.Remove(filepath.Join(dir, "b.tar.002")), os.Remove(filepath.Join(dir, "b.tar.001"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, "size=8m")
			for file, data := range contents(t, filepath.Dir(made)) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600))
			}
			damage(dir)
			require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			r, err := Repair(t.Context(), filepath.Join(dir, "b.tar.parts"), false)
			switch name {
			case "whole":
				require.NoError(t, err)
				require.Empty(t, r.Damaged)
			case "one lost":
				require.ErrorContains(t, err, "b.tar.002", "what is damaged is said all the same")
				require.ErrorContains(t, err, "read-only")
			case "interrupted":
				require.ErrorContains(t, err, "a signature was being added")
			case "too many lost":
				require.ErrorContains(t, err, "b.tar.001")
				require.ErrorContains(t, err, "b.tar.002")
			}
		})
	}
}

// Who goes on with a pull may want another number of recovery parts than who was stopped
// while those got their names.
func TestAPullGoesOnWithAnotherNumberOfRecoveryParts(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 235})
	begun := Options{VolumeSize: 30_000, Recovery: 2}
	finished := strings.TrimSuffix(inParts(t, b, begun), parts.Suffix)
	l, err := readParts(finished + parts.Suffix)
	require.NoError(t, err)
	for _, recovery := range []int{0, 1, 2, 3} {
		path := filepath.Join(t.TempDir(), "b.tar")
		w, err := CreateFile(path, begun)
		require.NoError(t, err)
		_, err = w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		require.NoError(t, errors.Join(w.journal.end(namedWith(begun.Recovery)), w.Close()))
		for i := range l.All() { // all have their names, and the parts file is not there yet
			_ = os.Remove(filepath.Join(filepath.Dir(path), unnamed(l, i)))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), l.Name(i)), read(t, filepath.Join(filepath.Dir(finished), l.Name(i))), 0o600))
		}
		now := begun
		now.Recovery = recovery
		w, err = CreateFile(path, now)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		require.NoError(t, verifyPath(t.Context(), path+parts.Suffix))
		require.Len(t, mustList(t, filepath.Dir(path)), int(l.Count())+recovery+1, "%d: nothing is left beside the parts", recovery)
	}
}
