package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// loginOptions are the flags of `login`.
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
		Long: `login checks a user and a password with a registry, and keeps them where docker and
podman do: in the file of --authfile, else $REGISTRY_AUTH_FILE, else docker's
config.json, or in the credential helper that this file names. The password is asked for,
or read from standard input; it is never an argument.`,
		Example: `  vdo-bundle login registry.site:5000 -u anna
  vdo-bundle login registry.site:5000 -u robot --password-stdin < password`,
		Args: flags.Exactly("REGISTRY"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.username, "username", "u", "", "the `USER`")
	fl.BoolVar(&o.passwordStdin, "password-stdin", false, "read the password from standard input")
	return with(cmd, o.registryFlags.bindSmall)
}

func (o *loginOptions) run(cmd *cobra.Command, host string) error {
	if o.username == "" {
		return flags.Missing(cmd, "-u USER")
	}
	access := o.registryFlags
	access.authFile = "" // it need not be there yet, and what is in it is not used
	client, err := access.client(o.app)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // idle connections only
	secret, err := o.secret(cmd.Context(), host)
	if err != nil {
		return err
	}
	in, err := client.Login(cmd.Context(), host, remote.Credential{Username: o.username, Password: secret}, o.authFile)
	if err != nil {
		return err
	}
	if !in.Checked {
		o.say("the login for %s is in %s; it was not checked: the registry lets everybody in at /v2/, whatever the login", host, in.Where)
		return nil
	}
	o.say("logged in to %s; the login is in %s", host, in.Where)
	return nil
}

// secret reads the password from standard input, or asks for it on the terminal.
func (o *loginOptions) secret(ctx context.Context, host string) (string, error) {
	terminal := o.in != nil && isatty.IsTerminal(o.in.Fd())
	var data []byte
	var err error
	switch {
	case o.passwordStdin && o.in != nil:
		data, err = readLimited(ctx, o.in)
	case terminal:
		data, err = o.prompt(ctx, fmt.Sprintf("Password for %s: ", host))
	default:
		err = fault.Errorf(fault.InvalidInput, "read password", "",
			"write it to standard input and give --password-stdin", "no terminal to ask for it")
	}
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimRight(data, "\r\n"))
	if secret == "" || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fault.Errorf(fault.InvalidInput, "read password", "", "write the password alone to standard input",
			"empty, or more than one line")
	}
	return secret, nil
}

// readLimited reads a password, and no longer than ctx lasts.
func readLimited(ctx context.Context, f *os.File) ([]byte, error) {
	data, err := within(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(f, maxPassword+1)) })
	if len(data) > maxPassword {
		err = fault.Errorf(fault.InvalidInput, "read password", "", "write the password alone to standard input",
			"larger than %d bytes", maxPassword)
	}
	return data, err
}

func newLogoutCommand(a *app) *cobra.Command {
	var authFile string
	cmd := &cobra.Command{
		Use:   "logout REGISTRY",
		Short: "Forget the login of a registry",
		Long: `logout removes what login has kept for a registry: from the file of --authfile, else
$REGISTRY_AUTH_FILE, else docker's config.json, or the credential helper that this
file names. Logins of other registries stay.`,
		Example: `  vdo-bundle logout registry.site:5000`,
		Args:    flags.Exactly("REGISTRY"),
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
