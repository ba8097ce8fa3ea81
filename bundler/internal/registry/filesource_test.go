package registry_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/ondisk"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// onDisk is a blob in two files, as an archive in parts has it, with the bytes that were
// read of it, and what happens when the sending has reached an offset.
type onDisk struct {
	t       *testing.T
	d       ocispec.Descriptor
	parts   [2]*os.File
	cut     int64
	read    atomic.Int64
	sent    atomic.Int64
	reached map[int64]func()
	looked  func() // before each look at the state; may be nil
	// verified is the state that is called verified.
	verified ondisk.State
}

func newOnDisk(t *testing.T, size int64) *onDisk {
	t.Helper()
	b := &onDisk{t: t, cut: size/3 + 5}
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	b.d = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: ocidigest(data), Size: size}
	for i, piece := range [][]byte{data[:b.cut], data[b.cut:]} {
		name := filepath.Join(t.TempDir(), fmt.Sprint(i))
		require.NoError(t, os.WriteFile(name, piece, 0o600))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		b.parts[i] = f
	}
	return b
}

func (b *onDisk) span(offset int64) (*os.File, int64, int64) {
	for at, do := range b.reached {
		if offset >= at {
			delete(b.reached, at)
			do()
		}
	}
	if offset < b.cut {
		return b.parts[0], offset, b.cut - offset
	}
	return b.parts[1], offset - b.cut, b.d.Size - offset
}

func (b *onDisk) ReadAt(p []byte, offset int64) (int, error) {
	f, at, n := b.parts[0], offset, b.cut-offset
	if offset >= b.cut {
		f, at, n = b.parts[1], offset-b.cut, b.d.Size-offset
	}
	k, err := f.ReadAt(p[:min(int64(len(p)), n)], at)
	b.read.Add(int64(k))
	return k, err
}

func (b *onDisk) state() (ondisk.State, error) {
	if b.looked != nil {
		b.looked()
	}
	var out string
	for _, f := range b.parts {
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		out += fmt.Sprint(info.Size(), info.ModTime().UnixNano(), ";")
	}
	return ondisk.State(out), nil
}

// verify says that the bytes, as they are now, have had their digest.
func (b *onDisk) verify() *onDisk {
	var err error
	b.verified, err = b.state()
	require.NoError(b.t, err)
	return b
}

// change writes a byte, as long after the last state as the clock of any file system
// needs to tell the two apart.
func (b *onDisk) change(offset int64) {
	time.Sleep(20 * time.Millisecond)
	f, at, _ := b.span(offset)
	old := make([]byte, 1)
	_, err := f.ReadAt(old, at)
	require.NoError(b.t, err)
	_, err = f.WriteAt([]byte{^old[0]}, at)
	require.NoError(b.t, err)
}

type onDiskStream struct {
	io.Reader
	of *onDisk
}

func (s onDiskStream) Close() error { return nil }
func (s onDiskStream) OnDisk() *ondisk.Blob {
	return &ondisk.Blob{ReaderAt: s.of, Size: s.of.d.Size, Span: s.of.span, State: s.of.state, Verified: s.of.verified, Moved: s.of.sent.Store}
}

func (b *onDisk) open(offset int64) (io.ReadCloser, error) {
	return onDiskStream{io.NewSectionReader(b, offset, b.d.Size-offset), b}, nil
}

const headOfBody = 8 << 10 // goes out with the headers, and is read for that

// What was verified is read by the kernel alone; what was not is read once more, to be
// hashed. Over TLS the program reads what it encrypts.
func TestABlobOnDiskIsReadNoMoreThanItHasToBe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel is asked to send files on Linux only")
	}
	const size = 5<<20 + 333
	for name, c := range map[string]struct {
		options  real.Options
		chunk    int64
		verified bool
		least    int64
		most     int64
	}{
		"verified":             {verified: true, most: headOfBody},
		"verified, in parts":   {verified: true, chunk: 1 << 20, most: 6 * headOfBody},
		"verified, TLS":        {options: real.Options{TLS: true}, verified: true, least: size, most: size},
		"not verified":         {least: size, most: size + headOfBody},
		"not verified, parts":  {chunk: 1 << 20, least: size, most: size + 6*headOfBody},
		"not verified, TLS":    {options: real.Options{TLS: true}, least: 2 * size, most: 2 * size},
		"a rate, and verified": {verified: true, most: headOfBody},
	} {
		t.Run(name, func(t *testing.T) {
			b, mirror := newOnDisk(t, size), real.Start(t, c.options)
			if c.verified {
				b.verify()
			}
			o := registry.Options{ChunkSize: c.chunk}
			if strings.HasPrefix(name, "a rate") {
				o.Rate = 1 << 30
			}
			cl, _ := client(t, o, mirror)
			repo := repository(cl, mirror, "a/b:1")
			require.NoError(t, repo.Put(t.Context(), b.d, b.open))
			require.LessOrEqual(t, b.read.Load(), c.most)
			require.GreaterOrEqual(t, b.read.Load(), c.least)
			require.Equal(t, int64(size), b.sent.Load())
			wantBlob(t, repo, b.d)
		})
	}
}

// A file that changes after it was verified never ends as a pushed blob: not before the
// sending, during it, or while the registry has not answered; nor where the registry
// takes whatever comes.
func TestAFileThatChangedAfterItWasVerifiedIsNotPushed(t *testing.T) {
	const size = 3 << 20
	taker := newTaker(t)
	for when, prepare := range map[string]func(*onDisk){
		"before":            func(b *onDisk) { b.change(size / 2) },
		"before, truncated": func(b *onDisk) { require.NoError(b.t, b.parts[1].Truncate(1000)) },
		"while its beginning is sent, in what was sent": func(b *onDisk) {
			b.reached = map[int64]func(){size / 2: func() { b.change(10) }}
		},
		"while its beginning is sent, in what is to be sent": func(b *onDisk) {
			b.reached = map[int64]func(){size / 2: func() { b.change(size - 10) }}
		},
		"while its end is sent": func(b *onDisk) {
			b.reached = map[int64]func(){size - 4<<10: func() { b.change(size - 10) }}
		},
		"before the registry answers": func(b *onDisk) { taker.beforeAnswer.Store(ptr(func() { b.change(10) })) },
	} {
		t.Run(when, func(t *testing.T) {
			mirror := real.Start(t, real.Options{})
			repos := map[string]*registry.Repository{"an honest registry": nil, "one that takes anything": nil}
			cl, _ := client(t, registry.Options{}, mirror)
			repos["an honest registry"] = repository(cl, mirror, "a/b:1")
			liar, err := registry.NewClient(registry.Options{PlainHTTP: []string{taker.host}})
			require.NoError(t, err)
			repos["one that takes anything"] = liar.Repository(image.MustReference(taker.host + "/a/b:1"))
			for name, repo := range repos {
				if name == "an honest registry" && when == "before the registry answers" {
					continue // which cannot be told when
				}
				t.Run(name, func(t *testing.T) {
					taker.beforeAnswer.Store(nil)
					b := newOnDisk(t, size).verify()
					prepare(b)
					err := repo.Put(t.Context(), b.d, b.open)
					require.Error(t, err)
					require.Contains(t, []fault.Reason{fault.Corrupt, fault.Incomplete}, fault.ReasonOf(err), err)
					require.Contains(t, err.Error(), b.d.Digest.String())
					if !strings.Contains(when, "truncated") {
						require.ErrorContains(t, err, "the file was changed after it was verified")
					}
				})
			}
		})
	}
}

// A file that only looks changed is hashed again, and pushed.
func TestAFileThatWasTouchedAfterItWasVerifiedIsPushed(t *testing.T) {
	const size = 3 << 20
	b, mirror := newOnDisk(t, size).verify(), real.Start(t, real.Options{})
	touch := func() { require.NoError(t, os.Chtimes(b.parts[0].Name(), time.Now(), time.Unix(1, 0))) }
	b.reached = map[int64]func(){size / 2: touch}
	cl, _ := client(t, registry.Options{}, mirror)
	repo := repository(cl, mirror, "a/b:1")
	require.NoError(t, repo.Put(t.Context(), b.d, b.open))
	require.GreaterOrEqual(t, b.read.Load(), int64(size), "it was hashed again")
	wantBlob(t, repo, b.d)
}

// What nobody has verified is hashed while it is sent, and its end is kept back.
func TestADamagedFileIsFoundBesideTheSending(t *testing.T) {
	const size = 3 << 20
	taker := newTaker(t)
	c, err := registry.NewClient(registry.Options{PlainHTTP: []string{taker.host}})
	require.NoError(t, err)
	b := newOnDisk(t, size)
	b.change(size / 2)
	err = c.Repository(image.MustReference(taker.host+"/a/b:1")).Put(t.Context(), b.d, b.open)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.ErrorContains(t, err, "its content is not what its digest says")
	require.Less(t, taker.got.Load(), int64(size))
}

// A connection that breaks in the middle of a file is followed by one that sends it.
func TestAFileIsSentAgainAfterACut(t *testing.T) {
	for _, verified := range []bool{true, false} {
		b, mirror := newOnDisk(t, 3<<20), real.Start(t, real.Options{})
		if verified {
			b.verify()
		}
		mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/blobs/uploads/"}, Times: 1, ResetAfter: 1 << 20})
		cl, _ := client(t, registry.Options{}, mirror)
		repo := repository(cl, mirror, "a/b:1")
		require.NoError(t, repo.Put(t.Context(), b.d, b.open))
		require.Equal(t, b.d.Size, b.sent.Load())
		wantBlob(t, repo, b.d)
	}
}

// taker is a registry that takes whatever comes, and says that it has nothing.
type taker struct {
	host         string
	got          atomic.Int64
	beforeAnswer atomic.Pointer[func()]
}

func newTaker(t *testing.T) *taker {
	t.Helper()
	k := &taker{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Method {
		case http.MethodPost:
			w.Header().Set("Location", "/upload")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPut:
			n, err := io.Copy(io.Discard, req.Body)
			if k.got.Store(n); err != nil {
				return
			}
			if do := k.beforeAnswer.Swap(nil); do != nil {
				(*do)()
			}
			w.WriteHeader(http.StatusCreated)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	k.host = strings.TrimPrefix(s.URL, "http://")
	return k
}

func ptr[T any](v T) *T { return &v }
