package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// maxFile bounds what is read of a file.
const maxFile = 4 << 20

// passwordEnv is the environment variable with the vCenters' password.
const passwordEnv = "VDO_VCENTER_PASSWORD" //nolint:gosec // a name

// siteFlags say where the configuration is.
type siteFlags struct {
	file, username, passwordFile string
	typedFor                     []string // servers that a password that was typed goes to
}

func (f *siteFlags) bind(fl *pflag.FlagSet) {
	fl.StringVarP(&f.file, "from-file", "f", "", "`FILE` with the VDOConfig, VsphereCloudConfigs and, where it has them, Secrets and ConfigMaps; - for standard input (default: what is in the cluster)")
	fl.StringVar(&f.username, "username", "", "`NAME@DOMAIN` to log in with, in place of the Secrets' accounts of the file")
	fl.StringVar(&f.passwordFile, "password-file", "", "`FILE` with its password (else "+passwordEnv+", or a prompt)")
}

// effective refuses flags without an effect. The account takes the place of the Secrets' in
// the file, and, with instead, of those in the cluster.
func (f *siteFlags) effective(instead bool) error {
	switch {
	case f.passwordFile != "" && f.username == "":
		return flags.Bad("--password-file", f.passwordFile, errors.New("--username is not given"), "give both, or none")
	case f.passwordFile == "-" && f.file == "-":
		return flags.Bad("--password-file", "-", errors.New("standard input has the configuration already"), "name a file")
	case f.username != "" && f.file == "" && !instead:
		return flags.Bad("--username", f.username, errors.New("the accounts are those of the Secrets in the cluster"), "leave it out, or check a file: --from-file")
	}
	return nil
}

// fileSite reads the configuration from a file.
func (f *siteFlags) fileSite(a *app) (site, error) {
	data, err := a.read("--from-file", f.file)
	if err != nil {
		return site{}, err
	}
	read, err := parseSite(f.file, data, a.cluster.namespace)
	if read.config != nil {
		err = fault.Join(err, preflight.Valid(read.config.Spec.Preflight))
	}
	err = fault.Join(err, read.addresses())
	if err != nil {
		return site{}, err
	}
	s := siteOf(read.config, read.vcenters, read)
	if s.preferAsked, s.file = f.username != "", f.file; s.file == "-" {
		s.file = "standard input"
	}
	return s, f.asks(a, &s)
}

// addresses refuses what the API server would refuse as the address of a vCenter: no connection
// says as well what is wrong with it.
func (o *objects) addresses() error {
	var errs []error
	for i := range o.vcenters {
		v := &o.vcenters[i]
		if err := isHost(v.Spec.VcIP); err != nil {
			errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read spec.vcIp of", Subject: "VsphereCloudConfig " + v.Name,
				Err: fmt.Errorf("%q: %w", v.Spec.VcIP, err), Hint: "write the name or address alone, such as vcenter.site.example; its port is spec.port"})
		}
	}
	return fault.Join(errs...)
}

// read reads a file that a flag, or an argument, names.
func (a *app) read(flag, name string) ([]byte, error) {
	file := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fileFault(flag, name, err)
		}
		defer func() { _ = f.Close() }()
		file = f
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is longer than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, fileFault(flag, name, err)
	}
	return data, nil
}

func fileFault(flag, name string, err error) error {
	f := &fault.Error{Reason: fault.Storage, Op: "read", Subject: name, Err: err, Hint: "check the path given with " + flag}
	if errors.Is(err, os.ErrNotExist) {
		f.Reason, f.Err = fault.NotFound, errors.New("no such file")
	}
	return f
}

// asks has the account of the flags used where a Secret is not there. A file with its password is
// read at once: one that is not there is a wrong flag, and no finding about a vCenter, and so is an
// account whose password nothing gives.
func (f *siteFlags) asks(a *app, s *site) error {
	if f.username != "" && f.passwordFile == "" && !a.hasPassword() {
		return f.noPassword()
	}
	var known *credentials.Credentials
	if f.passwordFile != "" {
		data, err := a.read("--password-file", f.passwordFile)
		if err != nil {
			return err
		}
		known = &credentials.Credentials{Username: f.username, Password: strings.TrimRight(string(data), "\r\n")}
	}
	s.ask = f.asker(a, known)
	password := "the password that you type"
	if _, set := a.getenv(passwordEnv); set {
		password = "the password in " + passwordEnv
	}
	if f.passwordFile != "" {
		password = "the password in --password-file " + fault.Quote(f.passwordFile)
	}
	s.given = "--username, or " + password
	return nil
}

// asker returns how an account is found whose Secret is not in the file: where it is not known by
// its flags the environment, then the terminal. It is asked for once.
func (f *siteFlags) asker(a *app, known *credentials.Credentials) func(context.Context, string) (credentials.Credentials, error) {
	return func(ctx context.Context, server string) (credentials.Credentials, error) {
		if known != nil {
			f.alsoAt(a, server)
			return *known, nil
		}
		if f.username == "" {
			return credentials.Credentials{}, &fault.Error{Reason: fault.NotFound, Op: "read the credentials of", Subject: server,
				Err: errors.New("its Secret is not in the file"), Hint: "put the Secret into the file, or give --username and --password-file, " + passwordEnv + " or a terminal"}
		}
		password, err := f.password(ctx, a, server)
		if err != nil {
			return credentials.Credentials{}, err
		}
		known = &credentials.Credentials{Username: f.username, Password: string(password)}
		return *known, nil
	}
}

// hasPassword tells whether the environment or a terminal gives one.
func (a *app) hasPassword() bool {
	_, set := a.getenv(passwordEnv)
	return set || a.interactive()
}

func (f *siteFlags) noPassword() error {
	return flags.Bad("--username", f.username, errors.New("no password, and no terminal to ask for one"), "name a file with --password-file, or set "+passwordEnv)
}

// password returns the account's. Who types it sees where it goes: the server's name is
// in a resource that somebody else may have written.
func (f *siteFlags) password(ctx context.Context, a *app, server string) ([]byte, error) {
	if p, ok := a.getenv(passwordEnv); ok {
		return []byte(p), nil
	}
	if !a.interactive() {
		return nil, f.noPassword()
	}
	f.typedFor = []string{server}
	_, _ = fmt.Fprintf(a.err, "Password of %s at %q: ", f.username, server)
	defer func() { _, _ = fmt.Fprintln(a.err) }()
	return a.hiddenLine(ctx)
}

// alsoAt tells of each further server that a typed password goes to.
func (f *siteFlags) alsoAt(a *app, server string) {
	if len(f.typedFor) > 0 && !slices.Contains(f.typedFor, server) {
		f.typedFor = append(f.typedFor, server)
		_ = command.Say(a.err, "The same password is used at %q.", server)
	}
}
