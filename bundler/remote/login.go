package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
)

const (
	opLogin  = "log in to"
	opLogout = "log out of"
)

// Login checks a login with a host (as references write it). It stores it in the file (if empty, the first that
// DefaultCredentials reads), or in the file's credential helper. Other entries stay, and refused logins are not
// stored. It returns the file or the helper's program, and the login that was there.
func (c *Client) Login(
	ctx context.Context, host string, login Credential, file string,
) (where string, replaced Credential, err error) {
	if err := CheckHost(opLogin, host); err != nil {
		return "", replaced, err
	}
	if login == (Credential{}) {
		return "", replaced, fault.Errorf(fault.InvalidInput, opLogin, host, "give a user and a password", "there is no login to check")
	}
	if err := c.checkLogin(ctx, host, login); err != nil {
		return "", replaced, err
	}
	s, err := openStore(opLogin, host, file)
	if err != nil {
		return "", replaced, err
	}
	if logins, err := s.config.logins(s.name); err == nil {
		replaced, _ = s.config.find(ctx, logins, host, "")
	}
	server := credentials.ServerAddressFromRegistry(host)
	if s.helper != "" {
		return s.helper.program(), replaced, s.helper.put(ctx, server, login)
	}
	return s.name, replaced, s.change(ctx, func(ctx context.Context, to credentials.Store) error {
		return to.Put(ctx, server, auth.Credential{Username: login.Username, Password: login.Password})
	})
}

// checkLogin returns a fault if the host refuses the login.
func (c *Client) checkLogin(ctx context.Context, host string, login Credential) error {
	o := c.opts
	o.Credentials = func(context.Context, string, string) (Credential, error) { return login, nil }
	probe, err := NewClient(o)
	if err != nil {
		return err
	}
	defer probe.Close() //nolint:errcheck // idle connections only
	h := probe.Host(host)
	return probe.Retry(ctx, h, opLogin, host, func() error {
		_, err := probe.call(ctx, h, Request{Method: http.MethodGet, URL: h.base.JoinPath("/v2/"), OK: []int{200}}) //nolint:bodyclose // it is closed
		return err
	})
}

// Logout deletes the logins for a host from the same file and its helper. It returns where they were, or a fault of
// the reason NotFound if there were none.
func Logout(ctx context.Context, host, file string) (where string, err error) {
	if err := CheckHost(opLogout, host); err != nil {
		return "", err
	}
	s, err := openStore(opLogout, host, file)
	if err != nil {
		return "", err
	}
	server := credentials.ServerAddressFromRegistry(host)
	kept, err := s.helper.get(ctx, server)
	if err == nil && kept != (Credential{}) {
		where = s.helper.program()
		_, err = s.helper.run(ctx, "erase", helperEntry{ServerURL: server})
	}
	for _, key := range slices.Sorted(maps.Keys(s.config.Auths)) {
		c, bad := credentialOf(s.config.Auths[key])
		isEmpty := bad == nil && c == (Credential{}) // docker leaves it so if a helper has the login
		if err == nil && !isEmpty && normalKey(key) == normalKey(host) {
			where = s.name
			err = s.change(ctx, func(ctx context.Context, from credentials.Store) error {
				return from.Delete(ctx, key)
			})
		}
	}
	if err == nil && where == "" {
		err = fault.Errorf(fault.NotFound, opLogout, host, "see which file has the login, and name it with --authfile",
			"%s has no login for it", s.name)
	}
	return where, err
}

// store is where the login of a host is kept: a configuration file, or the credential helper that it names.
type store struct {
	op, host string
	name     string // of the file
	config   configFile
	helper   helper // "" for none
}

// openStore opens the file that a user named, or else the first of DefaultCredentials. It follows a symbolic link, so
// that writing keeps the link.
func openStore(op, host, file string) (s store, err error) {
	if file == "" {
		file = configFiles(os.Getenv)[0]
	}
	s = store{op: op, host: host}
	if s.name, err = userfile.Behind(file); err != nil {
		return s, badConfig(file, atomicfile.WithoutPath(err))
	}
	data, err := userfile.Read("--authfile", s.name, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s.config, err = parseConfig(s.name, data)
	s.helper = s.config.helperOf(host)
	return s, err
}

// change edits the file. Write errors of oras hold no secret.
func (s store) change(ctx context.Context, do func(context.Context, credentials.Store) error) error {
	f, err := credentials.NewFileStore(s.name)
	if err != nil {
		return badConfig(s.name, errors.New("it is not JSON of docker's form"))
	}
	if err = do(ctx, f); err == nil {
		return nil
	}
	out := fault.Errorf(fault.Storage, s.op, s.host,
		"see that "+s.name+" can be written, or name another file with --authfile", "%w", err)
	if errors.Is(err, credentials.ErrBadCredentialFormat) {
		out.Reason, out.Hint = fault.InvalidInput, "give a user without a colon"
	}
	return out
}

// helper is the docker-credential-NAME program of a configuration; "" is none.
type helper string

// helperTime limits one run of a credential helper.
const helperTime = time.Minute

func (h helper) program() string { return "docker-credential-" + string(h) }

// get returns a server's login, or the zero Credential if there is none or no helper.
func (h helper) get(ctx context.Context, server string) (c Credential, err error) {
	if h == "" {
		return c, nil
	}
	out, err := h.run(ctx, "get", helperEntry{ServerURL: server})
	if err != nil || out == noneInHelper {
		return c, err
	}
	var entry helperEntry
	if json.Unmarshal([]byte(out), &entry) != nil {
		err = errors.New("its answer is not a login in JSON") // the cause could quote a secret
		return c, h.failed("get", server, err)
	}
	switch {
	case entry.Username == "" && entry.Secret == "":
		return c, nil
	case entry.Username == helperToken:
		return Credential{RefreshToken: entry.Secret, Source: h.program()}, nil
	}
	return Credential{Username: entry.Username, Password: entry.Secret, Source: h.program()}, nil
}

// put stores a server's login: a user and a password.
func (h helper) put(ctx context.Context, server string, c Credential) error {
	_, err := h.run(ctx, "store", helperEntry{server, c.Username, c.Password})
	return err
}

// helperEntry and these two words are docker's protocol for credential helpers.
type helperEntry struct{ ServerURL, Username, Secret string }

const (
	helperToken  = "<token>" // the user of an identity token
	noneInHelper = "credentials not found in native keychain"
)

// run runs the program and returns what it prints. A failing program prints its reason, which is not shown if it could
// hold a secret. The program's children may keep its output open longer than it lives.
func (h helper) run(ctx context.Context, action string, entry helperEntry) (string, error) {
	input := []byte(entry.ServerURL)
	if action == "store" {
		input, _ = json.Marshal(entry) //nolint:errchkjson,gosec // texts, for the helper's input
	}
	ctx, stop := context.WithTimeoutCause(ctx, helperTime, fmt.Errorf("it does not answer within %s", helperTime))
	defer stop()
	cmd := exec.CommandContext(ctx, h.program(), action)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(input), time.Second
	cmd.Stderr = struct{ io.Writer }{os.Stderr} // a pipe: a child left over does not keep our own output open
	data, err := cmd.Output()
	out := strings.TrimSpace(string(data))
	reason := Clean(out, 200)
	isSecret := strings.ContainsAny(out, `{"`) || entry.Secret != "" && strings.Contains(out, entry.Secret)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil, errors.Is(err, exec.ErrWaitDelay), action == "get" && out == noneInHelper:
		return out, nil
	case reason != "" && !isSecret:
		err = fmt.Errorf("%s: %w", reason, err)
	}
	return "", h.failed(action, entry.ServerURL, err)
}

func (h helper) failed(action, server string, err error) error {
	hint := fmt.Sprintf("correct what %s reports, or log in without a helper", h.program())
	if action == "get" {
		hint = fmt.Sprintf("see what `echo %s | %s get` says, or log in without a helper", server, h.program())
	}
	if errors.Is(err, exec.ErrNotFound) {
		err, hint = exec.ErrNotFound, fmt.Sprintf("install %s, or log in without a helper", h.program())
	}
	return fault.Errorf(fault.Unauthorized, "ask credential helper", h.program()+" for "+server, hint, "%w", err)
}
