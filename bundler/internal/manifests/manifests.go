// Package manifests fetches manifest files: the program's own from the program,
// upstream's from a folder where there is one, else over HTTPS from the URL that the
// matrix gives.
//
// A file is known by its sha256 and size alone. In the folder it may lie anywhere
// and have any name, so a clone of an upstream repository, or a folder that was
// filled by hand, both serve. Whatever its origin, no byte is handed out before all
// of them are verified.
package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Options say where files are looked for.
type Options struct {
	Own    [][]byte       // files that the program carries itself; looked in first
	Dir    string         // looked in next; "" for none
	Client *remote.Client // downloads what is in neither
}

const (
	maxEntries = 200_000 // files of the folder
	dirFlag    = "--manifest-dir"
)

// Store fetches files. It is safe for concurrent use.
type Store struct {
	options Options
	bySize  map[int64][]string // paths of the folder's files
}

// New returns a store, once the folder is listed; what is wrong with it is told ahead of all else, and not
// once for each file.
func New(o Options) (s *Store, err error) {
	s = &Store{options: o}
	if o.Dir != "" {
		s.bySize, err = scan(o.Dir)
	}
	return s, err
}

// Get returns the file that m names.
func (s *Store) Get(ctx context.Context, m matrix.Manifest) ([]byte, error) {
	if m.Size < 0 || m.Size > matrix.MaxManifestSize {
		return nil, failed(fault.InvalidInput, m, fmt.Errorf("a size of %d bytes is not between 0 and %d", m.Size, matrix.MaxManifestSize), "correct the size in the matrix")
	}
	data, err := s.local(m)
	if err != nil || data != nil {
		return data, err
	}
	return s.remote(ctx, m)
}

func failed(reason fault.Reason, m matrix.Manifest, err error, hint string) error {
	return &fault.Error{Reason: reason, Op: "fetch manifest", Subject: m.URL, Err: err, Hint: hint}
}

// local looks for the file in the program and in the folder; nil where it is not.
func (s *Store) local(m matrix.Manifest) ([]byte, error) {
	for _, data := range s.options.Own {
		if int64(len(data)) == m.Size && image.DigestOf(data).Hex() == m.SHA256 {
			return data, nil
		}
	}
	for _, path := range s.bySize[m.Size] {
		data, err := userfile.Read(dirFlag, path, matrix.MaxManifestSize)
		if err != nil { // to fetch it instead would hide that the folder is not what the user thinks
			return nil, err
		}
		if image.DigestOf(data).Hex() == m.SHA256 {
			return data, nil
		}
	}
	return nil, nil
}

// scan lists the files of a folder by size. A link that leads nowhere is none.
func scan(dir string) (map[int64][]string, error) {
	bySize := map[int64][]string{}
	entries := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("holds more than %d files", maxEntries)
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() <= matrix.MaxManifestSize {
			bySize[info.Size()] = append(bySize[info.Size()], path)
		}
		return nil
	})
	if err != nil {
		return nil, userfile.Unreadable(dirFlag, dir, err)
	}
	return bySize, nil
}

// remote downloads the file.
func (s *Store) remote(ctx context.Context, m matrix.Manifest) ([]byte, error) {
	if m.URL == "" {
		return nil, fault.Errorf(fault.NotFound, "fetch manifest", m.Name,
			"pull with the release of vdo-bundle that wrote the lock, or name a folder that has the file with --manifest-dir",
			"it has no URL, and this program carries another version of it")
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" {
		return nil, failed(fault.InvalidInput, m, errors.New("is not a URL"), "correct the URL in the matrix")
	}
	get := remote.Request{Method: http.MethodGet, URL: u, OK: []int{http.StatusOK}}
	answer, err := s.options.Client.Web(ctx, "fetch manifest", get, m.Size+1, "give the file with --manifest-dir")
	if err != nil {
		return nil, err
	}
	file := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, m.SHA256), Size: m.Size}
	if _, err := io.Copy(io.Discard, bundle.Verify(bytes.NewReader(answer.Data), file)); err != nil {
		return nil, failed(fault.Corrupt, m, fmt.Errorf("is not the file that the matrix names: %w", fault.CauseOf(err)),
			"the file was changed upstream or on its way, or the matrix is wrong: compare it with the upstream release, and give a good copy with --manifest-dir")
	}
	return answer.Data, nil
}
