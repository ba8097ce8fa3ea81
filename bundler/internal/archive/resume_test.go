package archive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// A lock file that its holder has removed may be another's by the time that it lets go.
func TestALockThatIsGivenBackTakesNoOthersAway(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // only read
	mine, err := d.lockArchive("b.tar")
	require.NoError(t, err)
	require.NoError(t, d.Remove(mine.name))
	others, err := d.lockArchive("b.tar")
	require.NoError(t, err)
	require.NoError(t, mine.release())
	_, err = d.lockArchive("b.tar")
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "it is locked")
	require.NoError(t, others.release())
	require.False(t, d.Has(mine.name))
}

// A run that was killed while it renamed the parts left some with their names, and the list without its own.
func TestPartsThatHaveTheirNamesAlreadyGoOn(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 97})
	s := store{path: filepath.Join(t.TempDir(), "b.tar"), o: Options{VolumeSize: 40_000, Recovery: 1}}
	_, err := s.begin(t, b)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path+".parts.partial", nil, 0o600))
	require.NoError(t, os.Rename(s.path+".001.partial", s.path+".001"))
	require.NoError(t, os.WriteFile(s.path+".p001", nil, 0o600))
	require.NoError(t, s.pull(t, b))
	s.verify(t)
}

// What is left of a pull is called what it is, and the way out is named.
func TestLeftoversAreCalledWhatTheyAre(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 95}), bundles.New(t, bundles.Options{Seed: 96})
	begin := func(o Options, b *bundles.Bundle, lost ...string) func(path string) error {
		return func(path string) error {
			_, err := store{path: path, o: o}.begin(t, b)
			for _, suffix := range lost {
				err = errors.Join(err, os.Remove(path+suffix))
			}
			return err
		}
	}
	both := func(first, second func(path string) error) func(path string) error {
		return func(path string) error { return errors.Join(first(path), second(path)) }
	}
	file := func(suffix, text string) func(path string) error {
		return func(path string) error { return os.WriteFile(path+suffix, []byte(text), 0o600) }
	}
	for what, c := range map[string]struct {
		left     func(path string) error
		isOthers bool // and not gone on with
	}{
		"of this bundle":                        {begin(Options{}, b), false},
		"of this bundle in parts":               {begin(Options{VolumeSize: 40_000}, b), true},
		"of another bundle":                     {begin(Options{}, other), true},
		"of an earlier version":                 {both(begin(Options{}, b), file(journalSuffix, "vdo-archive-journal/2 x\n")), true},
		"without a journal":                     {file(".partial", "x"), true},
		"a journal alone, of this bundle":       {begin(Options{}, b, ".partial"), false},
		"a journal alone, of another":           {begin(Options{}, other, ".partial"), false},
		"a journal without a line":              {file(journalSuffix, ""), false},
		"a journal cut off in its first line":   {file(journalSuffix, `{"journal":`), false},
		"a journal of which the end is no line": {file(journalSuffix, string(lines(journalHead{journalFormat, "x"}))+"{"), false},
	} {
		t.Run(what, func(t *testing.T) {
			s := store{path: filepath.Join(t.TempDir(), "b.tar")}
			require.NoError(t, c.left(s.path))
			before := contents(t, filepath.Dir(s.path))
			if _, err := s.begin(t, b); !c.isOthers {
				require.NoError(t, err)
			} else {
				require.Equal(t, fault.Conflict, fault.ReasonOf(err))
				require.ErrorContains(t, err, "an interrupted run of something else, or of an earlier version, left this file")
				require.Contains(t, fault.HintOf(err), "--restart")
				require.Equal(t, before, contents(t, filepath.Dir(s.path)))
			}
			require.NoError(t, s.restarting().pull(t, b))
			s.verify(t)
		})
	}
}

// While one process signs or writes, another one is told so, whatever name a parts file has.
func TestWhoWritesKeepsOthersOff(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 99})
	other, parted := written(t, b), inParts(t, b, Options{VolumeSize: 40_000, Recovery: 1})
	renamed := filepath.Join(filepath.Dir(parted), "other"+parts.Suffix)
	require.NoError(t, os.Rename(parted, renamed))
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(parted), "b.tar.002"))) // repair has to write
	repair := func(tar string) error { _, err := Repair(t.Context(), renamed); return err }
	for _, tar := range []string{written(t, b), strings.TrimSuffix(parted, parts.Suffix)} {
		others := map[string]func(tar string) error{
			"sign": func(tar string) error { return tarFile{&storage{location: tar}}.rewrite(nil) },
			"split": func(tar string) error {
				_, err := Split(t.Context(), other, tar, Options{VolumeSize: 30_000, Replace: true})
				return err
			},
			"replace": func(tar string) error {
				return store{path: tar, o: Options{VolumeSize: 40_000}}.replacing().restarting().pull(t, b)
			},
		}
		if filepath.Dir(tar) == filepath.Dir(renamed) {
			others["repair"] = repair
		}
		dir, lock, err := lockLocation(tar)
		require.NoError(t, err)
		before := contents(t, filepath.Dir(tar))
		for what, do := range others {
			err := do(tar)
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%s: %v", what, err)
			require.ErrorContains(t, err, "another process is writing it", what)
			require.Equal(t, before, contents(t, filepath.Dir(tar)), what)
		}
		require.NoError(t, errors.Join(lock.release(), dir.Close()))
	}
	require.NoError(t, repair(""))
	require.NoError(t, verifyPath(t.Context(), renamed))
}

func TestASplitThatFailsLeavesWhatItWouldReplace(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 101})
	path := inParts(t, b, Options{VolumeSize: 60_000, Recovery: 1})
	tar := strings.TrimSuffix(path, parts.Suffix)
	before := contents(t, filepath.Dir(path))
	_, err := Split(t.Context(), path, tar, Options{VolumeSize: 30_000, Replace: true})
	require.ErrorContains(t, err, "its parts have the names that would be written")
	require.NoError(t, os.Mkdir(tar+".004", 0o755))
	_, err = Split(t.Context(), written(t, b), tar, Options{VolumeSize: 30_000, Replace: true})
	require.Error(t, err)
	require.NoError(t, os.Remove(tar+".004"))
	require.Equal(t, before, contents(t, filepath.Dir(path)))
}

// The parts that a resumed run will replace stay until it is complete.
func TestPartsToBeReplacedStay(t *testing.T) {
	s := store{path: filepath.Join(t.TempDir(), "b.tar"), o: Options{VolumeSize: 40_000, Recovery: 1}}
	require.NoError(t, s.pull(t, bundles.New(t, bundles.Options{Seed: 98})))
	s.o.Replace = true
	for range 2 {
		_, err := s.begin(t, bundles.New(t, bundles.Options{Seed: 99}))
		require.NoError(t, err)
	}
	require.NoError(t, s.open(t).Damage(t.Context()))
}
