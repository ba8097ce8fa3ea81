package sshd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const maxKeyFiles = 32

// files are the jump host's files as they were read at one moment.
type files struct {
	sum      string // of all that was read
	inForce  string // see jumphost.InForce
	text     []byte // config.json, while it is read
	config   *jumphost.Config
	hostKeys []gossh.Signer
	nodeKeys []gossh.Signer
	known    gossh.HostKeyCallback // nil: the first key counts
}

// reaches tells whether an address is a host's, on a port that is allowed.
func (f *files) reaches(at netip.AddrPort) bool {
	_, _, ok := f.config.Find(at.Addr().String())
	return ok && f.config.Allows(uint32(at.Port()))
}

func (f *files) knows(key gossh.PublicKey) bool {
	if key == nil {
		return false
	}
	_, ok := f.config.Authorized(key)
	return ok
}

// reader reads files below a folder, and sums up what it read.
type reader struct {
	dir string
	sum io.Writer
}

// read reads all files, and reports all that is wrong with them.
func read(dir string) (*files, error) {
	sum := sha256.New()
	r := reader{dir, sum}
	f := &files{}
	errs := []error{f.readConfig(r), f.readHostKeys(r), f.readNodeKeys(r)}
	f.sum, f.inForce = hex.EncodeToString(sum.Sum(nil)), jumphost.InForce(f.text)
	f.text = nil
	return f, fault.Join(errs...)
}

// file returns the content of a file; nil where there is none.
func (r reader) file(name string) ([]byte, error) {
	path := jumphost.File(r.dir, name)
	unreadable := func(why error, hint string) error {
		return &fault.Error{Reason: fault.Storage, Op: "read", Subject: path, Err: why, Hint: hint}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unreadable(errors.Unwrap(err), "see the volumes of the pod")
	case !info.Mode().IsRegular() || info.Size() > jumphost.MaxFileSize:
		return nil, unreadable(fmt.Errorf("it is not a file of at most %d bytes", jumphost.MaxFileSize), "mount the ConfigMap or Secret there")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(errors.Unwrap(err), "see the volumes of the pod, and which user may read them")
	}
	_, _ = fmt.Fprintf(r.sum, "%q %d\n", name, len(data))
	_, _ = r.sum.Write(data)
	return data, nil
}

// keys reads all private keys of a folder, sorted by name.
func (r reader) keys(folder string) ([]gossh.Signer, error) {
	entries, err := os.ReadDir(jumphost.File(r.dir, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Reason: fault.Storage, Op: "read", Subject: jumphost.File(r.dir, folder), Err: errors.Unwrap(err), Hint: "see the volumes of the pod"}
	}
	var out []gossh.Signer
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "..") || name == jumphost.KnownHosts { // Kubernetes' own, and what is no key
			continue
		}
		if len(out) == maxKeyFiles {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: folder, Err: fmt.Errorf("there are more than %d keys", maxKeyFiles), Hint: "leave out keys that are no longer used"}
		}
		data, err := r.file(folder + "/" + name)
		if err == nil {
			var key gossh.Signer
			if key, err = jumphost.ParseHostKey(filepath.Join(folder, name), data); err == nil {
				out = append(out, key)
			}
		}
		errs = append(errs, err)
	}
	return out, fault.Join(errs...)
}

func (f *files) readConfig(r reader) error {
	data, err := r.file(jumphost.ConfigFile)
	if err != nil {
		return err
	}
	f.text = data
	f.config, err = jumphost.ParseConfig(jumphost.ConfigFile, data)
	return err
}

func (f *files) readHostKeys(r reader) error {
	keys, err := r.keys(jumphost.HostKeys)
	if err != nil {
		return err
	}
	f.hostKeys = keys
	types := map[string]bool{}
	for _, k := range keys {
		t := k.PublicKey().Type()
		if types[t] {
			return &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: jumphost.HostKeys, Err: fmt.Errorf("there are two keys of type %s", t), Hint: "keep one of each type"}
		}
		types[t] = true
	}
	if len(keys) == 0 {
		return &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: jumphost.HostKeys, Err: errors.New("there is no host key"), Hint: "mount the Secret with the host keys there"}
	}
	return nil
}

func (f *files) readNodeKeys(r reader) error {
	var err error
	if f.nodeKeys, err = r.keys(jumphost.NodeKeys); err != nil {
		return err
	}
	name := jumphost.NodeKeys + "/" + jumphost.KnownHosts
	if data, err := r.file(name); err != nil || data == nil {
		return err
	}
	if f.known, err = knownhosts.New(jumphost.File(r.dir, name)); err != nil {
		return &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: name, Err: errors.New("it is not a file of known hosts"), Hint: "give the lines that `ssh-keyscan` prints"}
	}
	return nil
}

// follow reads the files again and again, and takes what changed.
func (s *Server) follow(ctx context.Context) {
	tick := time.NewTicker(s.o.Limits.Poll)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f, err := read(s.o.Dir)
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			s.o.Log.Error("the files cannot be understood: the last good ones hold", "error", fault.Text(err))
		case err == nil && f.sum != s.files.Load().sum:
			s.take(f)
			s.audit.Info("configuration changed", "hosts", len(f.config.Hosts), "authorizedKeys", len(f.config.Keys))
		}
		if err == nil {
			said = ""
		}
	}
}

// take puts files in force, and ends what they no longer allow.
func (s *Server) take(f *files) {
	s.files.Store(f)
	for _, k := range f.hostKeys {
		s.ssh.AddHostKey(k)
	}
	for _, c := range s.connections() {
		s.review(c, f)
	}
	s.inForce.Store(&f.inForce) // nothing leads elsewhere any more
}

func (s *Server) review(c *connection, f *files) {
	c.mu.Lock()
	stranger := c.key != nil && !f.knows(c.key)
	var gone []*opened
	for o := range c.open {
		if !f.reaches(o.at) {
			gone = append(gone, o)
		}
	}
	c.mu.Unlock()
	if stranger {
		s.audit.Warn("connection closed", append(c.who(), "why", "its key is no longer authorised")...)
		_ = c.Close()
		return
	}
	slices.SortFunc(gone, func(a, b *opened) int { return a.at.Compare(b.at) })
	for _, o := range gone {
		s.audit.Warn("channel closed", append(c.who(), "to", o.at.String(), "why", "it is no host of this cluster any more")...)
		s.dismiss(c, o)
	}
}
