// Package manifests fetches manifest files. The program contains its own. Upstream's come from
// local directories if given, else over HTTPS from the URL in the matrix.
//
// Only sha256 and size identify a file. It may have any name and place in a directory, so clones
// of upstream repositories and hand-filled directories work. The package verifies all bytes of a
// file before it returns any, whatever the source.
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Options say where to find files.
type Options struct {
	Own    [][]byte       // built into the program; first
	Dirs   []string       // second
	Client *remote.Client // downloads all others
}

const (
	maxEntries = 200_000 // files of a directory
	dirFlag    = "--manifest-dir"
)

// Store fetches files. It is safe for concurrent use.
type Store struct {
	options Options
	bySize  map[int64][]string // paths in the directories
}

// New lists the directories and returns a store. It reports a faulty directory at once, not once per file.
func New(o Options) (*Store, error) {
	s := &Store{options: o, bySize: map[int64][]string{}}
	for _, dir := range o.Dirs {
		if err := s.scan(dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Get returns the file of m.
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

// local returns the file from the program or a directory; nil if it has none.
func (s *Store) local(m matrix.Manifest) ([]byte, error) {
	for _, data := range s.options.Own {
		if int64(len(data)) == m.Size && image.DigestOf(data).Hex() == m.SHA256 {
			return data, nil
		}
	}
	for _, path := range s.bySize[m.Size] {
		data, err := userfile.Read(dirFlag, path, matrix.MaxManifestSize)
		if err != nil { // a download would hide that the directory is not what the user expects
			return nil, err
		}
		if image.DigestOf(data).Hex() == m.SHA256 {
			return data, nil
		}
	}
	return nil, nil
}

// scan lists the files of a directory by size. It skips dangling links.
func (s *Store) scan(dir string) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil { // WalkDir does not follow a link
		dir = real
	}
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
			s.bySize[info.Size()] = append(s.bySize[info.Size()], path)
		}
		return nil
	})
	if err != nil {
		return userfile.Unreadable(dirFlag, dir, err)
	}
	return nil
}

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
