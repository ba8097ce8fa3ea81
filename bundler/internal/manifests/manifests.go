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
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/retry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Options say where files are looked for.
type Options struct {
	Own       [][]byte               // files that the program carries itself; looked in first
	Dir       string                 // looked in next; "" for none
	Transport http.RoundTripper      // carries the requests; nil: with the system's certificates
	PlainHTTP func(host string) bool // whether http: URLs are allowed for a host, with its port; nil: for none
	Attempts  int                    // how often a download is tried; 0: 4
	// Sleep waits before another attempt. Nil: the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

const (
	maxFile     = 8 << 20     // bytes
	maxEntries  = 200_000     // files of the folder
	attempts    = 4           // unless the options say otherwise
	timeout     = time.Minute // for one attempt
	maxRedirect = 5
)

// Store fetches files. It is safe for concurrent use.
type Store struct {
	options Options
	client  *http.Client

	scan    sync.Once
	bySize  map[int64][]string // paths of the folder's files
	unread  error              // what of the folder cannot be read
	scanErr error
}

// New returns a store. Nothing is read yet.
func New(o Options) *Store {
	if o.Attempts <= 0 {
		o.Attempts = attempts
	}
	s := &Store{options: o}
	s.client = &http.Client{
		Timeout:   timeout,
		Transport: o.Transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirect {
				return fmt.Errorf("more than %d redirects", maxRedirect)
			}
			return s.allowed(r.URL)
		},
	}
	return s
}

// Look lists the folder, once. A caller that asks before its first file is told of a folder that is
// not there ahead of all else, and not once for each file.
func (s *Store) Look() error {
	if s.options.Dir == "" {
		return nil
	}
	s.scan.Do(func() { s.bySize, s.unread, s.scanErr = scan(s.options.Dir) })
	return s.scanErr
}

// Get returns the file that m names.
func (s *Store) Get(ctx context.Context, m matrix.Manifest) ([]byte, error) {
	if m.Size < 0 || m.Size > maxFile {
		return nil, failed(fault.InvalidInput, m, fmt.Errorf("a size of %d bytes is not between 0 and %d", m.Size, maxFile), "correct the size in the matrix")
	}
	data, err := s.local(m)
	if err != nil || data != nil {
		return data, err
	}
	if data, err = s.remote(ctx, m); err != nil {
		return nil, fault.Join(err, s.unread) // it may be there
	}
	return data, nil
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
	if err := s.Look(); err != nil {
		return nil, err
	}
	for _, path := range s.bySize[m.Size] {
		data, err := readFile(path, m.Size)
		if err != nil { // to fetch it instead would hide that the folder is not what the user thinks
			return nil, unreadable(path, err)
		}
		if image.DigestOf(data).Hex() == m.SHA256 {
			return data, nil
		}
	}
	return nil, nil
}

func unreadable(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &fault.Error{
		Reason: fault.Storage, Op: "read manifest", Subject: path, Err: err,
		Hint: "make it readable, take it away, or leave out --manifest-dir",
	}
}

// scan lists the files of a folder by size, and tells what of it cannot be read.
func scan(dir string) (bySize map[int64][]string, unread, err error) {
	bySize = map[int64][]string{}
	entries := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && path == dir {
			return err
		}
		if err != nil {
			unread = fault.Join(unread, unreadable(path, err))
			return nil
		}
		if d.IsDir() {
			return nil
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("holds more than %d files", maxEntries)
		}
		info, err := os.Stat(path)
		if err != nil {
			unread = fault.Join(unread, unreadable(path, err))
			return nil
		}
		if info.Mode().IsRegular() && info.Size() <= maxFile {
			bySize[info.Size()] = append(bySize[info.Size()], path)
		}
		return nil
	})
	if err != nil {
		out := &fault.Error{
			Reason: fault.InvalidInput, Op: "read manifest folder", Subject: dir, Err: userfile.WithoutPath(err),
			Hint: "name a readable folder with --manifest-dir",
		}
		if errors.Is(err, fs.ErrNotExist) {
			out.Reason = fault.NotFound
		}
		return nil, nil, out
	}
	return bySize, unread, nil
}

func readFile(path string, size int64) ([]byte, error) {
	f, err := userfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, size+1))
}

// remote downloads the file, trying again what may pass.
func (s *Store) remote(ctx context.Context, m matrix.Manifest) ([]byte, error) {
	if m.URL == "" {
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "fetch manifest", Subject: m.Name, Err: errors.New("it has no URL, and this program carries another version of it"),
			Hint: "pull with the release of vdo-bundle that wrote the lock, or name a folder that has the file with --manifest-dir",
		}
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" {
		return nil, failed(fault.InvalidInput, m, errors.New("is not a URL"), "correct the URL in the matrix")
	}
	if err := s.allowed(u); err != nil {
		return nil, err
	}
	p := retry.Policy{Attempts: s.options.Attempts, Sleep: s.options.Sleep}
	return retry.Do(ctx, p, func() ([]byte, bool, error) { return s.try(ctx, m) })
}

// allowed refuses plain HTTP to hosts that were not named for it.
func (s *Store) allowed(u *url.URL) error {
	plain := s.options.PlainHTTP
	if u.Scheme == "https" || u.Scheme == "http" && plain != nil && plain(u.Host) {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "fetch manifest", Subject: u.Redacted(), Err: fmt.Errorf("%s: is not used", u.Scheme),
		Hint: fmt.Sprintf("give an https: URL, or allow plain HTTP for this host with --plain-http %s", u.Host),
	}
}

// try makes one attempt; again says whether another one may succeed.
func (s *Store) try(ctx context.Context, m matrix.Manifest) (data []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL, nil)
	if err != nil {
		return nil, false, failed(fault.InvalidInput, m, err, "correct the URL in the matrix")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, ctx.Err() == nil && !permanent(err), unreached(m, err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, refused(m, resp)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, m.Size+1))
	if err != nil {
		return nil, true, unreached(m, err)
	}
	if err := theFileOf(m, data); err != nil {
		return nil, false, failed(fault.Corrupt, m, fmt.Errorf("is not the file that the matrix names: %w", err),
			"the file was changed upstream or on its way, or the matrix is wrong: compare it with the upstream release, and give a good copy with --manifest-dir")
	}
	return data, false, nil
}

// theFileOf holds what came, at most a byte more than the size, against the matrix.
func theFileOf(m matrix.Manifest, data []byte) error {
	if int64(len(data)) > m.Size {
		return fmt.Errorf("expected %d bytes, got more", m.Size)
	}
	want, got := digest.NewDigestFromEncoded(digest.SHA256, m.SHA256), digest.FromBytes(data)
	if got != want {
		return &bundle.DigestError{Expected: want, Got: got}
	}
	return nil
}

const offline = "check the connection and the proxy settings, or give the files with --manifest-dir"

// permanent tells errors that another attempt will meet again.
func permanent(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) || remote.IsCertificate(err) || remote.WantsCertificate(err)
}

func unreached(m matrix.Manifest, err error) error {
	var f *fault.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &f):
		return f // a redirect that is not followed
	case remote.WantsCertificate(err):
		return failed(fault.CertificateInvalid, m, inner(err), "name the certificate that this host wants, and its key, in the file of --hosts-config, or give the files with --manifest-dir")
	case remote.IsCertificate(err):
		return failed(fault.CertificateInvalid, m, inner(err), "give the certificate authority with --ca-file, or the files with --manifest-dir")
	case errors.As(err, &dns):
		return failed(fault.Unreachable, m, dns, offline)
	}
	return failed(fault.Unreachable, m, inner(err), offline)
}

// inner drops what http.Client says again: the method and the URL.
func inner(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func refused(m matrix.Manifest, resp *http.Response) error {
	err := fmt.Errorf("the server answered %s", resp.Status)
	const own = "give the file with --manifest-dir"
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return failed(fault.NotFound, m, err, own)
	case http.StatusUnauthorized:
		return failed(fault.Unauthorized, m, err, own)
	case http.StatusForbidden:
		return failed(fault.Forbidden, m, err, own)
	case http.StatusTooManyRequests:
		return failed(fault.Throttled, m, err, "try again later, or "+own)
	}
	return failed(fault.Unreachable, m, err, offline)
}
