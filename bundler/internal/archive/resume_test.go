package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// halfway writes half of the blobs, and is stopped.
func halfway(t *testing.T, w target, b *bundles.Bundle) (rest []ocispec.Descriptor) {
	t.Helper()
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	for _, d := range missing[:len(missing)/2] {
		require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, w.Close())
	return missing[len(missing)/2:]
}

// Whatever the disk or somebody else made of what an interrupted run left: the archive
// is right to the byte, or there is none.
func TestNoByteOfAnEarlierRunIsBelievedUnread(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 90, LayerSize: 9000, Layers: 2})
	want := streamed(t, b)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	var at []int64 // one byte of everything: headers, data, padding, the end
	for _, e := range l.entries {
		at = append(at, e.offset+10, e.dataOffset(), e.dataOffset()+e.size/3)
		if padded(e.size) > e.size {
			at = append(at, e.dataOffset()+e.size)
		}
	}
	at = append(at, l.size-endSize, l.size-1)
	for _, o := range []Options{{}, {VolumeSize: 25_000}} {
		path := filepath.Join(t.TempDir(), "b.tar")
		for round := range 4 {
			w, err := CreateFile(path, o)
			require.NoError(t, err)
			halfway(t, w, b)
			for i := round; i < len(at); i += 4 {
				name, within := path+".partial", at[i]
				if o.VolumeSize > 0 {
					name, within = fmt.Sprintf("%s.%03d.partial", path, at[i]/o.VolumeSize+1), at[i]%o.VolumeSize
				}
				data := read(t, name)
				data[within] ^= 0x55
				require.NoError(t, os.WriteFile(name, data, 0o600))
			}
			w, err = CreateFile(path, o)
			require.NoError(t, err)
			require.NoError(t, pull(t.Context(), w, b, 1))
			left, err := filepath.Glob(path + "*")
			require.NoError(t, err)
			if o.VolumeSize == 0 {
				require.True(t, bytes.Equal(want, read(t, path)))
			} else {
				require.True(t, bytes.Equal(want, cat(t, path+parts.Suffix)))
			}
			for _, name := range left {
				require.NoError(t, os.Remove(name))
			}
		}
	}
}

// A blob of a folder has a name that says what it is. That is no proof.
func TestNoBlobOfAFolderIsBelievedUnread(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 91, LayerSize: 9000, Layers: 2})
	path := filepath.Join(t.TempDir(), "b")
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	rest := halfway(t, w, b)
	list, err := os.ReadDir(filepath.Join(path, blobPrefix))
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, e := range list {
		name := filepath.Join(path, blobPrefix, e.Name())
		data := read(t, name)
		data[len(data)/3] ^= 1
		require.NoError(t, os.WriteFile(name, data, 0o600))
	}
	w, err = CreateDir(path, Options{})
	require.NoError(t, err)
	planned, err := w.Plan(t.Context(), b.Graph)
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.Equal(t, planned, missing)
	require.Greater(t, len(missing), len(rest), "what is damaged is missing")
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.NoError(t, verifyDir(t.Context(), path))
}

// A key that signs twice makes two signatures. The payload is the same.
func TestAPullThatIsSignedAnewGoesOn(t *testing.T) {
	for _, o := range []Options{{}, {VolumeSize: 40_000, Recovery: 1}} {
		b := bundles.New(t, bundles.Options{Seed: 92, LayerSize: 20_000})
		path := filepath.Join(t.TempDir(), "b.tar")
		b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		rest := halfway(t, w, b)
		b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 2)}
		want := streamed(t, b)
		w, err = CreateFile(path, o)
		require.NoError(t, err)
		missing, err := w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		require.Equal(t, rest, missing, "what came is not fetched again")
		for _, d := range missing {
			require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
		}
		require.NoError(t, w.Commit(t.Context()))
		if o.VolumeSize > 0 {
			path += parts.Suffix
			require.True(t, bytes.Equal(want, cat(t, path)))
		} else {
			require.True(t, bytes.Equal(want, read(t, path)))
		}
		require.NoError(t, verifyPath(t.Context(), path))
	}
}

// Who asks for what is there already, to the byte, has it. Anything else is refused.
func TestAPullThatIsDoneIsDone(t *testing.T) {
	for _, o := range []Options{{}, {VolumeSize: 40_000, Recovery: 1}} {
		b, other := bundles.New(t, bundles.Options{Seed: 93}), bundles.New(t, bundles.Options{Seed: 94})
		dir := t.TempDir()
		path := filepath.Join(dir, "b.tar")
		again := func(b *bundles.Bundle) ([]ocispec.Descriptor, error) {
			w, err := CreateFile(path, o)
			require.NoError(t, err)
			missing, err := w.Begin(t.Context(), b.Graph)
			if err == nil {
				err = w.Commit(t.Context())
			}
			return missing, errors.Join(err, w.Close())
		}
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		count := len(mustList(t, dir))

		for _, journal := range []string{"", sealed(journalMagic+" "+identity(b.Graph, o)) + sealed(namedWith(o.Recovery))} {
			if journal != "" { // it was stopped before it had removed that
				require.NoError(t, os.WriteFile(path+journalSuffix, []byte(journal), 0o600))
			}
			missing, err := again(b)
			require.NoError(t, err)
			require.Empty(t, missing)
			require.Len(t, mustList(t, dir), count, "nothing is left beside it")
		}
		_, err = again(other)
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.ErrorContains(t, err, "it is there already")
		require.Contains(t, fault.HintOf(err), "--replace")
		require.Len(t, mustList(t, dir), count)

		name := path
		if o.VolumeSize > 0 {
			name += ".002"
		}
		data := read(t, name)
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(name, data, 0o600))
		_, err = again(b)
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "it is damaged")
	}
}

// What an interrupted replacement left is gone on with later, also where the archive that
// it was to replace is asked for in between.
func TestAPullThatIsDoneLeavesAnInterruptedReplacementAlone(t *testing.T) {
	for _, o := range []Options{{}, {VolumeSize: 40_000}} {
		b, other := bundles.New(t, bundles.Options{Seed: 172}), bundles.New(t, bundles.Options{Seed: 173, LayerSize: 20_000, Layers: 2})
		path := filepath.Join(t.TempDir(), "b.tar")
		replace := o
		replace.Replace = true
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		w, err = CreateFile(path, replace)
		require.NoError(t, err)
		rest := halfway(t, w, other)

		w, err = CreateFile(path, o)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		w, err = CreateFile(path, replace)
		require.NoError(t, err)
		missing, err := w.Begin(t.Context(), other.Graph)
		require.NoError(t, errors.Join(err, w.Close()))
		require.Equal(t, rest, missing, "what has come is not fetched again")

		w, err = CreateFile(path, replace) // of the same bundle, nothing is to be gone on with
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, other, 1))
		count := len(mustList(t, filepath.Dir(path)))
		w, err = CreateFile(path, replace)
		require.NoError(t, err)
		halfway(t, w, other)
		w, err = CreateFile(path, o)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, other, 1))
		require.Len(t, mustList(t, filepath.Dir(path)), count, "nothing is left beside it")
	}
}

// A lock file that its holder has removed may be another's by the time that it lets go.
func TestALockThatIsGivenBackTakesNoOthersAway(t *testing.T) {
	d, err := openFolder(t.TempDir())
	require.NoError(t, err)
	defer d.close() //nolint:errcheck // only read
	mine, err := d.lockArchive("b.tar")
	require.NoError(t, err)
	require.NoError(t, d.remove(mine.name))
	others, err := d.lockArchive("b.tar")
	require.NoError(t, err)
	require.NoError(t, mine.release())
	_, err = d.lockArchive("b.tar")
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "it is locked")
	require.NoError(t, others.release())
	require.False(t, d.has(mine.name))
}

func mustList(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	return list
}

// What is left of a pull is called what it is, and the way out is named.
func TestLeftoversAreCalledWhatTheyAre(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 95}), bundles.New(t, bundles.Options{Seed: 96})
	begin := func(path string, o Options, b *bundles.Bundle) error {
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		_, err = w.Begin(t.Context(), b.Graph)
		return errors.Join(err, w.Close())
	}
	for _, c := range []struct {
		what  string
		left  func(path string)
		want  string
		taken bool
	}{
		{"of this bundle", func(path string) { require.NoError(t, begin(path, Options{}, b)) }, "", true},
		{"of this bundle in parts", func(path string) { require.NoError(t, begin(path, Options{VolumeSize: 40_000}, b)) }, "an interrupted pull of this bundle left this file, with another --volume-size", false},
		{"of another bundle", func(path string) { require.NoError(t, begin(path, Options{}, other)) }, "an interrupted pull of another bundle left this file", false},
		{"without a journal", func(path string) { require.NoError(t, os.WriteFile(path+".partial", []byte("x"), 0o600)) }, "its journal is not there", false},
		{"a journal alone, of this bundle", func(path string) {
			require.NoError(t, begin(path, Options{}, b))
			require.NoError(t, os.Remove(path+".partial"))
		}, "", true},
		{"a journal alone, of another", func(path string) {
			require.NoError(t, begin(path, Options{}, other))
			require.NoError(t, os.Remove(path+".partial"))
		}, "", true},
		{"a journal without a line", func(path string) { require.NoError(t, os.WriteFile(path+journalSuffix, nil, 0o600)) }, "", true},
		{"a journal cut off in its first line", func(path string) {
			require.NoError(t, os.WriteFile(path+journalSuffix, []byte(journalMagic), 0o600))
		}, "", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "b.tar")
			c.left(path)
			err := begin(path, Options{}, b)
			if c.taken {
				require.NoError(t, err)
			} else {
				require.Equal(t, fault.Conflict, fault.ReasonOf(err))
				require.ErrorContains(t, err, c.want)
				require.Contains(t, fault.HintOf(err), "--restart")
			}
			w, err := CreateFile(path, Options{Restart: true})
			require.NoError(t, err)
			require.NoError(t, pull(t.Context(), w, b, 1))
			require.NoError(t, verifyPath(t.Context(), path))
			require.Len(t, mustList(t, filepath.Dir(path)), 1)
		})
	}
}

// Of many who pull the same to one place, each gets it or is told that another process
// writes it.
func TestPullsToOnePlaceAtOnce(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 97, LayerSize: 600, Layers: 1})
	for _, create := range creators(t) {
		for range 8 {
			var all sync.WaitGroup
			errs := make([]error, 6)
			for i := range errs {
				w := create(Options{})
				all.Go(func() { errs[i] = pull(t.Context(), w, b, int64(i)) })
			}
			all.Wait()
			done := 0
			for _, err := range errs {
				if err == nil {
					done++
					continue
				}
				require.Equal(t, fault.Conflict, fault.ReasonOf(err), err)
				require.ErrorContains(t, err, "another process is writing it")
			}
			require.Positive(t, done)
			w := create(Options{})
			missing, err := w.Begin(t.Context(), b.Graph)
			require.NoError(t, err)
			require.Empty(t, missing)
			require.NoError(t, errors.Join(w.Commit(t.Context()), w.Close()))
			dir := ""
			switch w := w.(type) {
			case *FileWriter:
				require.NoError(t, verifyPath(t.Context(), w.path))
				dir = filepath.Dir(w.path)
			case *DirWriter:
				require.NoError(t, verifyDir(t.Context(), w.path))
				dir = filepath.Dir(w.path)
			}
			require.Len(t, mustList(t, dir), 1, "nothing is left beside it")
			require.NoError(t, os.RemoveAll(filepath.Join(dir, mustList(t, dir)[0].Name())))
		}
	}
}

type attachable interface {
	Attach(ctx context.Context, atts ...bundle.Attachment) error
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
	Close() error
}

// Two people have read the same bundle and sign it. Who comes second would take the
// first one's signature away, and is told to look again.
func TestASignatureThatWasNotReadIsNotReplaced(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 98})
	file, folder, parted := written(t, b), writtenDir(t, b), inParts(t, b, Options{VolumeSize: 40_000, Recovery: 1})
	for name, open := range map[string]func() (attachable, error){
		"file":   func() (attachable, error) { return OpenFile(file) },
		"folder": func() (attachable, error) { return OpenDir(folder) },
		"parts":  func() (attachable, error) { return OpenFile(parted) },
	} {
		t.Run(name, func(t *testing.T) {
			first, err := open()
			require.NoError(t, err)
			defer first.Close()
			second, err := open()
			require.NoError(t, err)
			defer second.Close()
			require.NoError(t, first.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
			err = second.Attach(t.Context(), referrer(t, rootOf(b), 2), bundles.Signature(t, rootOf(b), 2))
			require.Equal(t, fault.Conflict, fault.ReasonOf(err))
			require.ErrorContains(t, err, "another process has changed "+bundles.Signature(t, rootOf(b), 1).Tag)
			require.Len(t, aboutRoot(t, b, open), 1, "nothing of what could not all be attached")
			require.NoError(t, second.Attach(t.Context(), referrer(t, rootOf(b), 1)), "what has no tag takes nobody's place")
			list := aboutRoot(t, b, open)
			require.Len(t, list, 2)
			require.True(t, slices.ContainsFunc(list, sameDigest(bundles.Signature(t, rootOf(b), 1).Node.Descriptor)))
		})
	}
	require.NoError(t, verifyPath(t.Context(), file))
	require.NoError(t, verifyPath(t.Context(), parted))
	require.NoError(t, verifyDir(t.Context(), folder))
}

// aboutRoot lists what is attached to a bundle, read anew.
func aboutRoot(t *testing.T, b *bundles.Bundle, open func() (attachable, error)) []ocispec.Descriptor {
	t.Helper()
	a, err := open()
	require.NoError(t, err)
	list, err := a.Attachments(t.Context(), rootOf(b))
	require.NoError(t, errors.Join(err, a.Close()))
	return list
}

// While one process signs or writes, another one is told so.
func TestWhoSignsKeepsOthersOff(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 99})
	path := inParts(t, b, Options{VolumeSize: 40_000, Recovery: 1})
	tar := strings.TrimSuffix(path, parts.Suffix)
	whole := written(t, b)
	for _, name := range []string{tar, whole} {
		dir, base, err := folderOf(name)
		require.NoError(t, err)
		lock, err := dir.lockArchive(base)
		require.NoError(t, err)
		before := contents(t, filepath.Dir(name))
		f, err := OpenFile(name)
		require.NoError(t, err)
		for what, do := range map[string]func() error{
			"sign": func() error { return f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)) },
			"split": func() error {
				_, err := Split(t.Context(), name, name, Options{VolumeSize: 30_000, Replace: true})
				return err
			},
			"replace": func() error {
				w, err := CreateFile(name, Options{Replace: true, Restart: true, VolumeSize: 40_000})
				require.NoError(t, err)
				return pull(t.Context(), w, b, 1)
			},
		} {
			err := do()
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), what)
			require.ErrorContains(t, err, "another process is writing it", what)
			require.Equal(t, before, contents(t, filepath.Dir(name)), what)
		}
		require.NoError(t, errors.Join(f.Close(), lock.release(), dir.close()))
	}
	_, err := Repair(t.Context(), path, false)
	require.NoError(t, err)
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range mustList(t, dir) {
		out[e.Name()] = string(read(t, filepath.Join(dir, e.Name())))
	}
	return out
}

// A folder that was signed by somebody since keeps that signature when the same bundle
// is pulled into it again.
func TestPullingAgainTakesNoSignatureAway(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 100})
	path := writtenDir(t, b)
	d, err := OpenDir(path)
	require.NoError(t, err)
	theirs, other := bundles.Signature(t, rootOf(b), 1), referrer(t, rootOf(b), 2)
	require.NoError(t, errors.Join(d.Attach(t.Context(), theirs), d.Attach(t.Context(), other), d.Close()))
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	d, err = OpenDir(path)
	require.NoError(t, err)
	list, err := d.Attachments(t.Context(), rootOf(b))
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Len(t, list, 2)

	// Who signs as he pulls has to have seen what is there.
	w, err = CreateDir(path, Options{})
	require.NoError(t, err)
	require.Equal(t, theirs.Node.Descriptor.Digest, existingTag(t, w, theirs.Tag))
	d, err = OpenDir(path)
	require.NoError(t, err)
	require.NoError(t, errors.Join(d.Attach(t.Context(), bundles.Signature(t, rootOf(b), 3)), d.Close()))
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 4)}
	err = pull(t.Context(), w, b, 1)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.NoError(t, verifyDir(t.Context(), path))
}

// Who signs as he pulls into a folder that another process makes meanwhile takes its
// signature away no more than one that was there before.
func TestAFolderThatCameMeanwhileKeepsItsSignature(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 103})
	path := filepath.Join(t.TempDir(), "layout")
	theirs, ours := bundles.Signature(t, rootOf(b), 1), bundles.Signature(t, rootOf(b), 2)
	w, err := CreateDir(path, Options{})
	require.NoError(t, err)
	require.Nil(t, w.Existing())

	other, err := CreateDir(path, Options{})
	require.NoError(t, err)
	b.Graph.Attachments = []bundle.Attachment{theirs}
	require.NoError(t, pull(t.Context(), other, b, 1))

	b.Graph.Attachments = []bundle.Attachment{ours}
	err = pull(t.Context(), w, b, 1)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	again, err := CreateDir(path, Options{})
	require.NoError(t, err)
	require.Equal(t, theirs.Node.Descriptor.Digest, existingTag(t, again, theirs.Tag))
}

// existingTag is what has a tag at a writer's place already.
func existingTag(t *testing.T, w *DirWriter, tag string) digest.Digest {
	t.Helper()
	s := w.Existing()
	require.NotNil(t, s)
	defer s.Close()
	d, _ := s.(*Dir).index().tagged(tag)
	return d.Digest
}

// Who signs as he pulls into an archive that another process finishes between two of his
// looks is told so, and what to do: another name is not what he needs.
func TestAnArchiveThatCameBetweenTwoLooksIsNamedAsAnothers(t *testing.T) {
	for _, o := range []Options{{}, {VolumeSize: 60_000}} {
		b := bundles.New(t, bundles.Options{Seed: 104})
		path := filepath.Join(t.TempDir(), "a.tar")
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		require.Nil(t, w.Existing())

		other, err := CreateFile(path, o)
		require.NoError(t, err)
		b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
		require.NoError(t, pull(t.Context(), other, b, 1))

		there := w.Existing()
		require.NotNil(t, there)
		require.NoError(t, there.Close())
		b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 2)}
		err = pull(t.Context(), w, b, 1)
		require.ErrorContains(t, err, "another process has written it meanwhile")
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))

		late, err := CreateFile(path, o) // it was there before: nobody came between
		require.NoError(t, err)
		require.ErrorContains(t, pull(t.Context(), late, b, 1), "it is there already")
	}
}

// A split that cannot be finished leaves the parts that it would replace: they may be
// the only copy.
func TestASplitThatFailsLeavesTheOldParts(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 101})
	path := inParts(t, b, Options{VolumeSize: 60_000, Recovery: 1})
	tar := strings.TrimSuffix(path, parts.Suffix)
	before := contents(t, filepath.Dir(path))
	o := Options{VolumeSize: 30_000, Replace: true}
	inTheWay := fmt.Sprintf("%s.%03d", tar, 4)
	require.NoError(t, os.Mkdir(inTheWay, 0o755))
	_, err := Split(t.Context(), path, tar, o)
	require.Error(t, err)
	require.NoError(t, os.Remove(inTheWay))
	require.Equal(t, before, contents(t, filepath.Dir(path)))
	require.NoError(t, verifyPath(t.Context(), path))
	_, err = Split(t.Context(), path, tar, o)
	require.NoError(t, err)
	require.NoError(t, verifyPath(t.Context(), path))
	require.True(t, bytes.Equal(streamed(t, b), cat(t, path)))
	require.NoFileExists(t, tar+".p001")
}

// The new parts get their names one by one; who is stopped among them is completed.
func TestASplitStoppedAmongTheNamesIsCompleted(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 102})
	o := Options{VolumeSize: 30_000, Recovery: 1}
	wanted := strings.TrimSuffix(inParts(t, b, o), parts.Suffix)
	l, err := readParts(wanted + parts.Suffix)
	require.NoError(t, err)
	for named := range l.All() + 1 {
		path := inParts(t, b, Options{VolumeSize: 45_000, Recovery: 2})
		tar := strings.TrimSuffix(path, parts.Suffix)
		for i := range l.All() {
			data := read(t, filepath.Join(filepath.Dir(wanted), l.Name(i)))
			name := filepath.Join(filepath.Dir(path), l.Name(i))
			if i >= named {
				name += splitSuffix
			}
			require.NoError(t, os.WriteFile(name, data, 0o600))
		}
		require.NoError(t, os.WriteFile(path+splitSuffix, l.Text(), 0o600))
		require.NoError(t, os.WriteFile(tar, []byte("another archive"), 0o600))
		o := o
		o.Replace = true
		_, err := Split(t.Context(), path, tar, o)
		require.NoError(t, err)
		require.NoError(t, verifyPath(t.Context(), path))
		require.True(t, bytes.Equal(streamed(t, b), cat(t, path)))
		require.Len(t, mustList(t, filepath.Dir(path)), l.All()+1)
	}
}

// The list of a split whose parts are gone takes nothing away.
func TestASplitWithoutItsPartsIsNotCompleted(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 174})
	l, err := readParts(inParts(t, b, Options{VolumeSize: 60_000}))
	require.NoError(t, err)
	path := inParts(t, b, Options{VolumeSize: 20_000})
	count := len(mustList(t, filepath.Dir(path)))
	require.NoError(t, os.WriteFile(path+splitSuffix, l.Text(), 0o600))
	_, err = Split(t.Context(), path, strings.TrimSuffix(path, parts.Suffix), Options{VolumeSize: 30_000, Replace: true})
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, "b.tar.001.split")
	require.NoError(t, os.Remove(path+splitSuffix))
	require.Len(t, mustList(t, filepath.Dir(path)), count)
	require.NoError(t, verifyPath(t.Context(), path))
}

func TestRandomDamageBetweenRuns(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 103, LayerSize: 30_000})
	want := streamed(t, b)
	for seed := range int64(8) {
		r := rand.New(rand.NewSource(seed))
		path := filepath.Join(t.TempDir(), "b.tar")
		for !attempt(t, path, b, 1+r.Intn(200_000)) {
			data := read(t, path+".partial")
			for range 3 {
				data[r.Intn(len(data))] ^= byte(1 + r.Intn(255))
			}
			require.NoError(t, os.WriteFile(path+".partial", data, 0o600))
		}
		require.True(t, bytes.Equal(want, read(t, path)), "seed %d", seed)
	}
}
