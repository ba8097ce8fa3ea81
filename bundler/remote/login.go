package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"

	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

const (
	opLogin  = "log in to"
	opLogout = "log out of"
)

// LoggedIn is a login that is kept.
type LoggedIn struct {
	Where string // the file, or the program of the credential helper
	// Checked tells whether the host looks at logins where it was shown this one. Some
	// let everybody in there, and ask for a login only at a repository.
	Checked bool
}

// Login checks a login with a host, named as references write it, and keeps it where
// DefaultCredentials finds it: in the file, or with the credential helper that the file
// names. No file is the first one that DefaultCredentials looks into. What the file has
// of an older login for the host is removed; other entries stay as they are. A login
// that the host refuses is not kept.
func (c *Client) Login(ctx context.Context, host string, login Credential, file string) (LoggedIn, error) {
	if err := CheckHost(opLogin, host); err != nil {
		return LoggedIn{}, err
	}
	if login == (Credential{}) {
		return LoggedIn{}, &fault.Error{Reason: fault.InvalidInput, Op: opLogin, Subject: host, Hint: "give a user and a password", Err: errors.New("there is no login to check")}
	}
	checked, err := c.checkLogin(ctx, host, login)
	if err != nil {
		return LoggedIn{}, err
	}
	s, err := openStore(opLogin, host, file)
	if err != nil {
		return LoggedIn{}, err
	}
	if err := s.Put(ctx, s.server, login); err != nil {
		return LoggedIn{}, s.fault(err)
	}
	return LoggedIn{s.where, checked}, s.forgetOlder(ctx)
}

// checkLogin is a fault where the host does not let the login in, and tells whether it
// looked at it: a host that asks nobody for a login takes any.
func (c *Client) checkLogin(ctx context.Context, host string, login Credential) (checked bool, err error) {
	probe, err := c.probe(login)
	if err != nil {
		return false, err
	}
	defer probe.Close() //nolint:errcheck // idle connections only
	h := probe.Host(host)
	err = probe.Retry(ctx, h, opLogin, host, func(int) error { return probe.enter(ctx, h) })
	ch, _ := h.challenged()
	return err == nil && ch.scheme != "", err
}

// probe is a client with one login for everything.
func (c *Client) probe(login Credential) (*Client, error) {
	o := c.opts
	o.Credentials = func(context.Context, string, string) (Credential, error) { return login, nil }
	return NewClient(o)
}

// enter asks once to be let in.
func (c *Client) enter(ctx context.Context, h *Host) error {
	resp, err := c.Send(ctx, h, Request{Method: http.MethodGet, URL: h.base.JoinPath(apiPath), OK: []int{http.StatusOK}}) //nolint:bodyclose // Drain closes it
	if err == nil {
		Drain(resp.Body)
	}
	return err
}

// Logout forgets the login for a host, in the same file and its helper. It returns where
// the login was; that there was none is told by a fault of the reason NotFound.
func Logout(ctx context.Context, host, file string) (where string, err error) {
	if err := CheckHost(opLogout, host); err != nil {
		return "", err
	}
	s, err := openStore(opLogout, host, file)
	if err != nil {
		return "", err
	}
	there, err := s.Get(ctx, s.server)
	if err != nil {
		return "", s.fault(err)
	}
	found := there != (Credential{}) && (!s.keyed || s.exact)
	if len(s.older) == 0 && !found {
		return "", &fault.Error{
			Reason: fault.NotFound, Op: opLogout, Subject: host, Hint: "see which file has the login, and name it with --authfile",
			Err: fmt.Errorf("%s has no login for it", s.where),
		}
	}
	if !found {
		return s.name, s.forgetOlder(ctx)
	}
	if err := s.Delete(ctx, s.server); err != nil {
		return "", s.fault(err)
	}
	return s.where, s.forgetOlder(ctx)
}

// forgetOlder deletes the entries of the file that are the host's too.
func (s *store) forgetOlder(ctx context.Context) error {
	if len(s.older) == 0 {
		return nil
	}
	file, err := openFile(s.name)
	if err != nil {
		return err
	}
	in := store{op: s.op, host: s.host, where: s.name} // for messages: the helper is not it
	for _, key := range s.older {
		if err := file.Delete(ctx, key); err != nil {
			return in.fault(err)
		}
	}
	return nil
}

func openFile(name string) (credentials.Store, error) {
	file, err := credentials.NewFileStore(name)
	if err != nil {
		return nil, badConfig(name, errors.New("it is not JSON of docker's form"))
	}
	return file, nil
}

// store is where the login of a host is kept: oras' file, or a credential helper.
type store struct {
	credentials.Store
	op, host string
	server   string   // how the store names the host
	name     string   // the file's
	older    []string // other keys of the file that are the host's, such as https://HOST/v1/; with a helper, all that hold a login
	keyed    bool     // it is the file, of which oras gives the login of a repository for that of its host
	exact    bool     // the file has the host under its name
	where    string   // for messages
}

// openStore opens what docker would use: the helper of the host, or that of all, or
// the file itself.
func openStore(op, host, file string) (*store, error) {
	file, err := storeFile(op, host, file)
	if err != nil {
		return nil, err
	}
	data, err := readFile(file, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, badConfig(file, err)
	}
	config, err := parseConfig(file, data)
	if err != nil {
		return nil, err
	}
	s := &store{op: op, host: host, server: credentials.ServerAddressFromRegistry(host), name: file, where: file}
	if program := config.helperOf(host); program != "" {
		h := helper{name: program, within: helperTime}
		s.Store, s.where, s.older = h, h.program(), config.loginsOf(host)
		return s, nil
	}
	s.keyed = true
	for _, key := range config.keysOf(host) {
		if key == s.server {
			s.exact = true
		} else {
			s.older = append(s.older, key)
		}
	}
	s.Store, err = openFile(file)
	return s, err
}

// storeFile is the file that a user named, or else the first of DefaultCredentials. Where
// it is a link, what that leads to is written, and the link stays.
func storeFile(op, host, named string) (string, error) {
	if files := configFiles(os.Getenv); named == "" && len(files) > 0 {
		named = files[0]
	}
	if named == "" {
		return "", &fault.Error{Reason: fault.InvalidInput, Op: op, Subject: host, Hint: "name a file with --authfile", Err: errors.New("neither HOME nor REGISTRY_AUTH_FILE is set")}
	}
	file, err := userfile.Behind(named)
	if err != nil {
		return "", badConfig(named, userfile.WithoutPath(err))
	}
	return file, nil
}

// keysOf are the keys of auths that are a host's, sorted.
func (f configFile) keysOf(host string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
		if normalKey(key) == normalKey(host) {
			keys = append(keys, key)
		}
	}
	return keys
}

// loginsOf are those of them that hold a login: docker leaves an empty entry where a
// helper has it.
func (f configFile) loginsOf(host string) []string {
	return slices.DeleteFunc(f.keysOf(host), func(key string) bool {
		c, err := credentialOf(f.Auths[key])
		return err == nil && c == (Credential{})
	})
}

// fault is one of the store; what oras says of a file that it cannot write is harmless.
func (s *store) fault(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	f := &fault.Error{Reason: fault.Storage, Op: s.op, Subject: s.host, Hint: "see that " + s.where + " can be written, or name another file with --authfile", Err: err}
	if errors.Is(err, credentials.ErrBadCredentialFormat) {
		f.Reason, f.Hint = fault.InvalidInput, "give a user without a colon"
	}
	return f
}
