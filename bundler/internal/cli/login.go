package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/token"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

type loginOptions struct {
	common
	username      string
	passwordStdin bool
}

func newLoginCommand(a *app) *cobra.Command {
	o := &loginOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "login REGISTRY -u USER",
		Short: "Log in to a registry",
		Long: `login checks a user and a password with a registry, and stores them like docker and podman:
in the file of --authfile, else $REGISTRY_AUTH_FILE, else docker's config.json. If that file
names a credential helper, it stores them there. The password comes from a prompt or standard
input; it is never an argument.`,
		Example: `  vdo-bundle login registry.site:5000 -u anna
  vdo-bundle login registry.site:5000 -u robot --password-stdin < password`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.username, "username", "u", "", "the `USER`")
	fl.BoolVar(&o.passwordStdin, "password-stdin", false, "read the password from standard input")
	return with(cmd, o.registryFlags.bindSmall)
}

func (o *loginOptions) run(cmd *cobra.Command, host string) error {
	access := o.registryFlags
	access.authFile = "" // it may be missing, and login does not read it
	client, err := access.client(&o.common)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // idle connections only
	secret, err := o.secret(cmd.Context(), host)
	if err != nil {
		return err
	}
	where, old, err := client.Login(cmd.Context(), host, remote.Credential{Username: o.username, Password: secret}, o.authFile)
	if err != nil {
		return err
	}
	if old.Username != "" && old.Username != o.username {
		where += ", in place of the login of " + old.Username
	}
	o.say("logged in to %s; the login is in %s", host, where)
	return nil
}

// secret reads the password from standard input or the terminal.
func (o *loginOptions) secret(ctx context.Context, host string) (string, error) {
	var data []byte
	var err error
	switch {
	case o.passwordStdin:
		data, err = command.Within(ctx, func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(os.Stdin, maxPassword+1))
		})
	case term.IsTerminal(int(os.Stdin.Fd())):
		data, err = o.prompt(ctx, fmt.Sprintf("Password for %s: ", host))
	default:
		err = badPassword("no terminal to ask for it", "write it to standard input and give --password-stdin")
	}
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimRight(data, "\r\n"))
	if secret == "" || len(data) > maxPassword || strings.ContainsAny(secret, "\r\n\x00") {
		return "", badPassword(fmt.Sprintf("empty, more than one line, or larger than %d bytes", maxPassword),
			"write the password alone to standard input")
	}
	return secret, nil
}

func newLogoutCommand(a *app) *cobra.Command {
	var authFile string
	cmd := &cobra.Command{
		Use:   "logout REGISTRY",
		Short: "Forget the login of a registry",
		Long: `logout removes the login of a registry from the file of --authfile, else
$REGISTRY_AUTH_FILE, else docker's config.json. If that file names a credential helper, it
removes the login there. Logins of other registries stay.`,
		Example: `  vdo-bundle logout registry.site:5000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			where, err := remote.Logout(cmd.Context(), args[0], authFile)
			if err == nil {
				a.say("the login of %s is no longer in %s", args[0], where)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&authFile, "authfile", "", "`FILE` that has the login")
	return cmd
}

// passwordFlags locate a private key's password. It is never an argument: other users of the machine see those.
type passwordFlags struct {
	file  string
	found string // the environment variable that had the password, or ""
}

func (f *passwordFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.file, "key-password-file", "", "`FILE` with the password of the private key (else VDO_KEY_PASSWORD, COSIGN_PASSWORD, or a prompt)")
}

// pin returns the PIN of a token: from the file in the URI, else like a key's password.
func (f *passwordFlags) pin(ctx context.Context, a *app, uri token.URI) (pin []byte, err error) {
	if uri.PINFile != "" {
		pin, err = userfile.Read("pin-source", uri.PINFile, maxPassword)
		pin = bytes.TrimRight(pin, "\r\n")
	} else {
		pin, err = f.password(ctx, a, "PIN of "+uri.String()+": ")
	}
	if err == nil && len(pin) == 0 { // the token would count a failed login
		err = badPassword("the PIN is empty", "give it in the file, or in VDO_KEY_PASSWORD")
	}
	return pin, err
}

// password returns a private key's password, from the file, the environment or the terminal. It prompts once per
// element of prompts; the answers must be equal.
func (f *passwordFlags) password(ctx context.Context, a *app, prompts ...string) (password []byte, err error) {
	if f.file != "" {
		data, err := userfile.Read("--key-password-file", f.file, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	for _, name := range []string{"VDO_KEY_PASSWORD", "COSIGN_PASSWORD"} {
		if value, ok := os.LookupEnv(name); ok {
			f.found = name
			return []byte(value), nil
		}
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, badPassword("no password, and no terminal to ask for one",
			"set VDO_KEY_PASSWORD or COSIGN_PASSWORD, or name a file with --key-password-file")
	}
	for n, prompt := range prompts {
		answer, err := a.prompt(ctx, prompt)
		switch {
		case err != nil:
			return nil, err
		case n > 0 && !bytes.Equal(password, answer):
			return nil, badPassword("the two are not the same", "run the command again")
		}
		password = answer
	}
	return password, nil
}

// newPassword returns the password to encrypt a new key with. It prompts twice, since a typing error would make the
// key unusable. It refuses an empty password from any source, which would protect nothing.
func (f *passwordFlags) newPassword(ctx context.Context, a *app, prompt string) ([]byte, error) {
	password, err := f.password(ctx, a, prompt, "The same once more: ")
	if err == nil && len(password) == 0 {
		err = badPassword("it is empty", "give one; a key that must not be encrypted comes from "+
			"`openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`")
	}
	return password, err
}

func badPassword(why, hint string) error {
	return fault.Errorf(fault.InvalidInput, "read password", "", hint, "%s", why)
}

// prompt asks for a password on the terminal.
func (a *app) prompt(ctx context.Context, prompt string) ([]byte, error) {
	a.ask(prompt)
	defer a.ask("\n")
	password, err := command.ReadLine(ctx, os.Stdin, true)
	return []byte(password), err
}

func (a *app) ask(s string) { _, _ = fmt.Fprint(a.err, s) }
