package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// interrupted is an archive that is changed when the n-th read of it begins.
type interrupted struct {
	io.ReaderAt
	reads, at int
	change    func()
}

func (i *interrupted) ReadAt(p []byte, at int64) (int, error) {
	if i.reads == i.at {
		i.change()
	}
	i.reads++
	return i.ReaderAt.ReadAt(p, at)
}

// copyOfArchive copies an archive, or its parts, into a folder of its own.
func copyOfArchive(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range mustList(t, filepath.Dir(path)) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, e.Name()), read(t, filepath.Join(filepath.Dir(path), e.Name())), 0o600))
	}
	return filepath.Join(dir, filepath.Base(path))
}

// Somebody signs between any two reads of who opens the archive: its size is that of
// before by then, or a part of its headers, or its index.json.
func TestAnArchiveThatIsSignedWhileItIsOpenedIsSeenBeforeOrAfterwards(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 310})
	signed := written(t, b)
	sign(t, signed, bundles.Signature(t, rootOf(b), 1))
	parted := inParts(t, b, Options{VolumeSize: 20_000, Recovery: 1})
	sign(t, parted, bundles.Signature(t, rootOf(b), 1))
	for name, from := range map[string]string{"not signed": written(t, b), "signed": signed, "parts": parted} {
		t.Run(name, func(t *testing.T) {
			_, reads := openInterrupted(t, copyOfArchive(t, from), -1, nil)
			for at := 0; at < reads; at++ {
				if at > 9 && at < reads-9 && at != reads/2 {
					continue // between two headers, as the ones before
				}
				path := copyOfArchive(t, from)
				a, _ := openInterrupted(t, path, at, func() { sign(t, path, bundles.Signature(t, rootOf(b), 2)) })
				require.NoError(t, verifyLoaded(t, a))
				list, err := a.Attachments(t.Context(), rootOf(b))
				require.NoError(t, err)
				for _, d := range list {
					_, err := bundle.ReadAttachment(t.Context(), a, rootOf(b), d)
					require.NoError(t, err, "read %d of %d", at, reads)
				}
				require.NoError(t, a.CheckLayout(t.Context()), "read %d", at)
				require.NoError(t, errors.Join(a.Damage(t.Context()), a.Close()), "read %d", at)
			}
		})
	}
}

// openInterrupted opens an archive that is changed when a read of it begins, and tells how
// many there were.
func openInterrupted(t *testing.T, path string, at int, change func()) (a *File, reads int) {
	t.Helper()
	seen := &interrupted{at: at, change: change}
	a, err := openSteadily(path, func(path string, f storage) (*scan, error) {
		size, err := storageSize(path, f)
		require.NoError(t, err)
		seen.ReaderAt = f
		return scanSized(path, seen, size)
	})
	require.NoError(t, err, "read %d", at)
	t.Cleanup(func() { _ = a.Close() }) // again
	return a, seen.reads
}

func sign(t *testing.T, path string, atts ...bundle.Attachment) {
	t.Helper()
	a, err := OpenFile(path)
	require.NoError(t, err)
	for _, att := range atts {
		require.NoError(t, a.Attach(t.Context(), att))
	}
	require.NoError(t, a.Close())
}

// Who has opened an archive reads on as it was, and its layout is held against what is
// there now. What is damaged is found as before.
func TestAnArchiveThatIsSignedAfterItWasOpened(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 311})
	for name, path := range map[string]string{"file": written(t, b), "parts": inParts(t, b, Options{VolumeSize: 20_000, Recovery: 1})} {
		t.Run(name, func(t *testing.T) {
			a, err := OpenFile(path)
			require.NoError(t, err)
			defer a.Close()
			for n := range 3 {
				sign(t, path, bundles.Signature(t, rootOf(b), n), referrer(t, rootOf(b), n))
				require.NoError(t, errors.Join(verify(t.Context(), a), a.Damage(t.Context())))
			}
			data := strings.TrimSuffix(path, parts.Suffix)
			if data != path {
				data += ".001"
			}
			f, err := os.OpenFile(data, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte("x"), 100) // in the first header
			require.NoError(t, err)
			require.Equal(t, fault.Corrupt, fault.ReasonOf(a.CheckLayout(t.Context())))
		})
	}
}

// Two people sign in both forms. The one who comes second sees the other's referrer only
// after his own, and still does not replace a signature that he has not read.
func TestASignatureThatCameBetweenTwoOfOursIsNotReplaced(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 312})
	file, folder, parted := written(t, b), writtenDir(t, b), inParts(t, b, Options{VolumeSize: 40_000})
	for name, open := range map[string]func() (attachable, error){
		"file":   func() (attachable, error) { return OpenFile(file) },
		"folder": func() (attachable, error) { return OpenDir(folder) },
		"parts":  func() (attachable, error) { return OpenFile(parted) },
	} {
		t.Run(name, func(t *testing.T) {
			ours, err := open()
			require.NoError(t, err)
			defer ours.Close()
			theirs, err := open()
			require.NoError(t, err)
			defer theirs.Close()
			require.NoError(t, theirs.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
			require.NoError(t, ours.Attach(t.Context(), referrer(t, rootOf(b), 1)))
			err = ours.Attach(t.Context(), bundles.Signature(t, rootOf(b), 2))
			require.Equal(t, fault.Conflict, fault.ReasonOf(err))
			require.NoError(t, theirs.Attach(t.Context(), bundles.Signature(t, rootOf(b), 3)), "his own he has seen")
		})
	}
}

// A split has the lock of what it writes, and its source may be another archive, which
// somebody signs: bytes of before and of afterwards make no archive.
func TestAnArchiveThatIsSignedWhileItIsSplitIsNotSplit(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 313})
	path := written(t, b)
	to := filepath.Join(t.TempDir(), "p.tar")
	s := &splitter{to: to, o: Options{VolumeSize: 20_000}}
	var name string
	var err error
	s.dir, name, err = folderOf(to)
	require.NoError(t, err)
	defer s.dir.close()
	while := &asked{Context: t.Context(), first: func() { sign(t, path, bundles.Signature(t, rootOf(b), 1)) }}
	err = s.run(while, path)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "another process is changing it")
	require.Empty(t, mustList(t, filepath.Dir(to)), name)

	require.NoError(t, (&splitter{dir: s.dir, to: to, o: s.o}).run(t.Context(), path))
	require.NoError(t, verifyPath(t.Context(), to+parts.Suffix))
}

// asked is a context that does something when it is first asked whether it is over: when
// the first bytes are about to be copied.
type asked struct {
	context.Context //nolint:containedctx // it is one
	once            sync.Once
	first           func()
}

func (a *asked) Err() error {
	a.once.Do(a.first)
	return a.Context.Err()
}

// Readers come at any moment while two people sign again and again.
func TestReadersBesideSigners(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 314})
	for name, path := range map[string]string{"file": written(t, b), "parts": inParts(t, b, Options{VolumeSize: 20_000, Recovery: 1})} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var readers errgroup.Group
			for range 2 {
				readers.Go(func() error {
					for ctx.Err() == nil {
						if err := verifyPath(t.Context(), path); err != nil && fault.ReasonOf(err) != fault.Conflict {
							return fmt.Errorf("read: %w", err)
						}
					}
					return nil
				})
			}
			var signers errgroup.Group
			for s := range 2 {
				signers.Go(func() error {
					for n := range 15 {
						err := signOnce(t.Context(), path, bundles.Signature(t, rootOf(b), 100*s+n))
						if err != nil && fault.ReasonOf(err) != fault.Conflict {
							return fmt.Errorf("sign: %w", err)
						}
					}
					return nil
				})
			}
			err := signers.Wait()
			stop()
			require.NoError(t, errors.Join(err, readers.Wait()))
			require.NoError(t, verifyPath(t.Context(), path))
		})
	}
}

func signOnce(ctx context.Context, path string, att bundle.Attachment) error {
	a, err := OpenFile(path)
	if err != nil {
		return err
	}
	return errors.Join(a.Attach(ctx, att), a.Close())
}
