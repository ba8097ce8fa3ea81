package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// tarEntry is a tar entry with a blob's name.
func tarEntry(d ocispec.Descriptor, data []byte) []byte {
	out := append(header(blobPrefix+d.Digest.Encoded(), int64(len(data))), data...)
	return append(out, make([]byte, padded(int64(len(data)))-int64(len(data)))...)
}

// partsOf lists the blobs of a signature, its manifest among them, with their bytes.
func partsOf(a bundle.Attachment) []ocispec.Descriptor {
	node := a.Node.Descriptor
	node.Data = a.Node.Data
	return append(slices.Clone(a.Blobs), node)
}

// Wherever a signing was stopped, the archive can be read, and the next signature, the same or
// another one of which what was left is no part, makes it whole.
func TestSigningThatWasCutOffIsCompletedOrTakenBack(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 19})
	path := written(t, b)
	before := read(t, path)
	sign(t, path, bundles.Signature(t, rootOf(b), 1))
	after := read(t, path)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	end, index := len(before)-endSize, int(l.entries[1].dataOffset())
	text := index + len(bytes.TrimRight(after[index:index+int(l.entries[1].size)], " \n"))
	extended := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
	for name, steps := range map[string][][2]int{
		"extended":         {},
		"half of the rest": {{end + endSize, end + endSize + 300}},
		"the rest":         {{end + endSize, len(after)}},
		"first block":      {{end + endSize, len(after)}, {end, end + blockSize}},
		"second block":     {{end, len(after)}},
		"half of index":    {{end, len(after)}, {index, text - 40}},
	} {
		for _, next := range []int{1, 2} {
			t.Run(fmt.Sprint(name, next), func(t *testing.T) {
				data := bytes.Clone(extended)
				for _, step := range steps {
					copy(data[step[0]:step[1]], after[step[0]:step[1]])
				}
				path := filepath.Join(t.TempDir(), "b.tar")
				require.NoError(t, os.WriteFile(path, data, 0o600))
				if name == "half of index" {
					_, err := OpenFile(path)
					require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
					copied := after[index : index+int(l.entries[1].size)]
					require.NoError(t, os.WriteFile(indexCopy(path), copied, 0o600))
				}
				a := opened(t, path)
				require.NoError(t, verifyLoaded(t.Context(), a))
				require.NoError(t, a.Attach(t.Context(), bundles.Signature(t, rootOf(b), next)))
				list, err := a.Attachments(t.Context(), rootOf(b))
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.NoError(t, verify(t.Context(), a))
				require.NoFileExists(t, indexCopy(path))
			})
		}
	}
}

// The digests of a signature's parts can be told before it is made. Whoever had the
// archive before may have put other bytes under these names.
func TestWhatHasTheNameOfASignaturesBlobInAnArchiveIsNotBelieved(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 220})
	sig := bundles.Signature(t, rootOf(b), 1)
	whole := read(t, written(t, b))
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	first := l.entries[2].offset // where the blobs begin
	for n, d := range partsOf(sig) {
		for name, data := range map[string][]byte{
			"of its size": bytes.Repeat([]byte("x"), int(d.Size)),
			"shorter":     []byte("x"),
			"longer":      bytes.Repeat([]byte("x"), int(d.Size)+2000),
		} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				planted := tarEntry(d, data)
				path := filepath.Join(t.TempDir(), "b.tar")

				require.NoError(t, os.WriteFile(path,
					slices.Concat(whole[:len(whole)-endSize], planted, make([]byte, endSize)), 0o600))
				sign(t, path, sig) // at the end it is what an interrupted signing leaves
				require.NoError(t, verifyPath(t.Context(), path))

				before := slices.Concat(whole[:first], planted, whole[first:])
				require.NoError(t, os.WriteFile(path, before, 0o600))
				err := opened(t, path).Attach(t.Context(), sig)
				require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
				require.ErrorContains(t, err, d.Digest.Encoded())
				require.True(t, bytes.Equal(before, read(t, path)), "nothing was signed")
			})
		}
	}
}

func sign(t *testing.T, path string, atts ...bundle.Attachment) {
	t.Helper()
	a, err := openAny(path)
	require.NoError(t, err)
	for _, att := range atts {
		require.NoError(t, a.Attach(t.Context(), att))
	}
	require.NoError(t, a.Close())
}

// Who has opened an archive reads on as it was; what its layout is checked for is not there
// any more. What is damaged is found as before, unless somebody writes the archive.
func TestAnArchiveThatIsSignedAfterItWasOpened(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 311})
	path := written(t, b)
	a := opened(t, path)
	sign(t, path, bundles.Signature(t, rootOf(b), 1), referrer(t, rootOf(b), 1))
	require.NoError(t, verifyLoaded(t.Context(), a))
	require.Equal(t, fault.Conflict, fault.ReasonOf(a.CheckLayout(t.Context())))
	now := opened(t, path)
	require.NoError(t, verify(t.Context(), now))
	flip(t, path, 100) // in the first header
	require.Equal(t, fault.Corrupt, fault.ReasonOf(now.CheckLayout(t.Context())))
	dir, lock, err := lockPlace(path)
	require.NoError(t, err)
	for _, err := range []error{now.CheckLayout(t.Context()), verifyPath(t.Context(), path)} {
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.ErrorContains(t, err, "another process is changing it")
	}
	require.NoError(t, errors.Join(lock.release(), dir.Close()))
}

// A split has the lock of what it writes, and its source may be another archive, which
// somebody signs: bytes of before and of afterwards make no archive.
func TestAnArchiveThatIsSignedWhileItIsSplitIsNotSplit(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 313})
	path := written(t, b)
	to := filepath.Join(t.TempDir(), "p.tar")
	while := &asked{Context: t.Context(), first: func() { sign(t, path, bundles.Signature(t, rootOf(b), 1)) }}
	_, err := Split(while, path, to, Options{VolumeSize: 20_000})
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "another process is changing it")
	require.Empty(t, names(t, filepath.Dir(to)))

	_, err = Split(t.Context(), path, to, Options{VolumeSize: 20_000})
	require.NoError(t, err)
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
