package registry_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// gullible is a registry that compares no digest: what comes is the blob. It notes what
// came, so that a test can tell whether anything else was passed off as the blob.
type gullible struct {
	*registry.Repository

	got    atomic.Int64 // bytes of the upload that is under way
	begun  atomic.Int64 // uploads
	losing atomic.Int64 // answers to whole uploads that are lost yet

	mu       sync.Mutex
	received func(n int64) // hears how much of an upload has come
	ended    func()        // hears that all of it has, before the answer
	sum      hash.Hash
	took     []string // digests of what it has taken
}

func newGullible(t *testing.T, o registry.Options) *gullible {
	t.Helper()
	k := &gullible{received: func(int64) {}, ended: func() {}}
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	o.PlainHTTP = []string{host}
	c, _ := client(t, o)
	k.Repository = c.Repository(image.MustReference(host + "/a/b:1"))
	return k
}

func (k *gullible) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch req.Method {
	case http.MethodPost:
		k.begun.Add(1)
		k.got.Store(0)
		k.sum = sha256.New()
		w.Header().Set("Location", "/upload")
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPatch:
		if k.take(req.Body) == nil {
			w.Header().Set("Range", fmt.Sprintf("0-%d", k.got.Load()-1))
			w.WriteHeader(http.StatusAccepted)
		}
	case http.MethodPut:
		if k.take(req.Body) != nil {
			return
		}
		k.ended()
		k.took = append(k.took, "sha256:"+hex.EncodeToString(k.sum.Sum(nil)))
		if k.losing.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	default:
		if len(k.took) == 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(k.got.Load()))
	}
}

func (k *gullible) take(body io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		k.sum.Write(buf[:n])
		k.received(k.got.Add(int64(n)))
		if err == io.EOF { //nolint:errorlint // as io.Reader has it
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// taken are the digests of what it has taken.
func (k *gullible) taken() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.took)
}

// touch changes nothing but the state.
func (b *onDisk) touch() {
	time.Sleep(20 * time.Millisecond)
	require.NoError(b.t, os.Chtimes(b.parts[0].Name(), time.Now(), time.Now()))
}

// A byte of a file that is another while it is sent, and the right one again when the
// end is: nothing that was hashed was sent. The blob is sent again, and it is the only
// one that even a registry that compares nothing takes.
func TestBytesThatNothingHashedAreNotPushed(t *testing.T) {
	const size, other = 6 << 20, 3 << 20
	for name, c := range map[string]struct {
		verified bool
		options  registry.Options
		honest   bool
	}{
		"verified":                     {verified: true},
		"verified, in parts":           {verified: true, options: registry.Options{ChunkSize: 1 << 20}},
		"not verified":                 {},
		"not verified, in parts":       {options: registry.Options{ChunkSize: 1 << 20}},
		"verified, an honest registry": {verified: true, honest: true, options: registry.Options{ChunkSize: 1 << 20}},
	} {
		t.Run(name, func(t *testing.T) {
			b, k := newOnDisk(t, size), newGullible(t, c.options)
			to := k.Repository
			if c.honest {
				mirror := real.Start(t, real.Options{})
				cl, _ := client(t, c.options, mirror)
				to = repository(cl, mirror, "a/b:1")
			}
			if c.verified {
				b.verify()
			}
			var changed atomic.Bool
			b.reached = map[int64]func(){b.cut: func() { // what is hashed beside the sending has the right byte
				require.Eventually(t, func() bool { return c.verified || b.read.Load() >= size }, 10*time.Second, time.Millisecond)
				b.change(other)
				changed.Store(true)
			}}
			b.looked = func() { // before the end is sent
				if changed.CompareAndSwap(true, false) {
					require.Eventually(t, func() bool { return c.honest || k.got.Load() > other }, 10*time.Second, time.Millisecond)
					b.change(other)
				}
			}
			require.NoError(t, to.Put(t.Context(), b.d, b.open))
			require.Empty(t, b.reached)
			require.False(t, changed.Load(), "it was changed back")
			if c.honest {
				wantBlob(t, to, b.d)
				return
			}
			require.Equal(t, []string{b.d.Digest.String()}, k.taken())
			require.Equal(t, int64(2), k.begun.Load(), "it was sent again from its beginning")
		})
	}
}

// The registry has the blob, and its answer was lost: what it was sent counts only if
// the file is still what was sent.
func TestAnAnswerThatWasLostIsNoAnswerForAFileThatChanged(t *testing.T) {
	const size = 3 << 20
	for name, c := range map[string]struct {
		meanwhile func(*onDisk)
		uploads   int64
		corrupt   bool
	}{
		"as it was": {meanwhile: func(*onDisk) {}, uploads: 1},
		"touched":   {meanwhile: (*onDisk).touch, uploads: 2},
		"changed":   {meanwhile: func(b *onDisk) { b.change(10) }, uploads: 1, corrupt: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, k := newOnDisk(t, size).verify(), newGullible(t, registry.Options{})
			k.losing.Store(1)
			k.ended = sync.OnceFunc(func() { c.meanwhile(b) })
			err := k.Put(t.Context(), b.d, b.open)
			if c.corrupt {
				wantFault(t, err, fault.Corrupt, "the file was changed after it was verified")
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.uploads, k.begun.Load())
		})
	}
}

// After it was sent again, the registry is not asked whether it has it: that may be what
// came first. An answer that is lost then means that it is sent once more.
func TestWhatWasSentBeforeAChangeIsNotAskedFor(t *testing.T) {
	b, k := newOnDisk(t, 3<<20).verify(), newGullible(t, registry.Options{})
	k.ended = sync.OnceFunc(func() { b.touch(); k.losing.Store(2) }) // the first answer, and the second
	require.NoError(t, k.Put(t.Context(), b.d, b.open))
	require.Equal(t, int64(3), k.begun.Load())
}

// An archive is one file: it changes for each of its blobs when two others sign it.
func TestAFileThatChangedMoreThanOnceArrives(t *testing.T) {
	b, k := newOnDisk(t, 3<<20).verify(), newGullible(t, registry.Options{})
	left := 2
	k.ended = func() {
		if left--; left >= 0 {
			b.touch()
		}
	}
	require.NoError(t, k.Put(t.Context(), b.d, b.open))
	require.Equal(t, int64(3), k.begun.Load())
	require.Equal(t, b.d.Digest.String(), k.taken()[2])
}

// A file that changes whenever it is sent is not sent for ever.
func TestAFileThatGoesOnChangingIsGivenUp(t *testing.T) {
	b, k := newOnDisk(t, 3<<20).verify(), newGullible(t, registry.Options{})
	at := time.Unix(0, 0)
	k.received = func(n int64) {
		if n > 1<<20 {
			at = at.Add(time.Hour)
			require.NoError(t, os.Chtimes(b.parts[0].Name(), at, at))
		}
	}
	wantFault(t, k.Put(t.Context(), b.d, b.open), fault.Conflict, "the file is being changed while it is sent", "let nothing write to the bundle")
	require.Equal(t, int64(4), k.begun.Load(), "sent, and three times sent anew")
}

// A medium that gives other bytes than it gave before, in the same state: the registry
// finds that, and is not blamed. Nor is a medium that is as it was.
func TestWhatTheRegistryRefusesIsHashedAgain(t *testing.T) {
	const size = 3 << 20
	for _, chunk := range []int64{0, 1 << 20} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			mirror := real.Start(t, real.Options{})
			c, _ := client(t, registry.Options{ChunkSize: chunk}, mirror)
			repo := repository(c, mirror, "a/b:1")
			b := newOnDisk(t, size).verify()
			info, err := b.parts[0].Stat()
			require.NoError(t, err)
			b.change(10)
			require.NoError(t, os.Chtimes(b.parts[0].Name(), time.Time{}, info.ModTime()))
			state, err := b.state()
			require.NoError(t, err)
			require.Equal(t, b.verified, state, "no state tells")
			wantFault(t, repo.Put(t.Context(), b.d, b.open), fault.Corrupt, "the medium gives other bytes than before", "pull or copy the bundle again")

			sound := newOnDisk(t, size).verify()
			mirror.Fail(real.Fault{Match: real.Match{Method: "PUT"}, Status: 400, Body: `{"errors":[{"code":"DIGEST_INVALID"}]}`})
			err = repo.Put(t.Context(), sound.d, sound.open)
			require.ErrorContains(t, err, "DIGEST_INVALID")
			require.NotContains(t, err.Error(), "its content is not")
			require.GreaterOrEqual(t, sound.read.Load(), int64(size), "it was hashed again")
		})
	}
}
