package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// keygenOptions are the flags of `keygen`.
type keygenOptions struct {
	*app
	passwordFlags
	prefix string
}

func newKeygenCommand(a *app) *cobra.Command {
	o := &keygenOptions{app: a}
	cmd := &cobra.Command{
		Use:   "keygen [-o PREFIX]",
		Short: "Make a key pair to sign with",
		Long: `keygen makes an ECDSA P-256 key pair in the form of cosign generate-key-pair:
PREFIX.key, encrypted with a password, and PREFIX.pub. Files that are there are
never replaced.`,
		Example: `  vdo-bundle keygen -o release`,
		Args:    flags.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&o.prefix, "output", "o", "vdo", "path `PREFIX` of the pair, without .key and .pub")
	flags.Group(cmd, flags.Signing, o.passwordFlags.bind)
	return cmd
}

func (o *keygenOptions) run(ctx context.Context) error {
	private, public := o.prefix+".key", o.prefix+".pub"
	if err := noneThere(private, public); err != nil {
		return err
	}
	password, err := o.newPassword(ctx, o.app, "Password for "+private+": ")
	if err != nil {
		return err
	}
	key, pub, err := trust.GenerateKey(password)
	if err != nil {
		return err
	}
	if err := userfile.WriteNew(private, key, 0o600); err != nil {
		return err
	}
	if err := userfile.WriteNew(public, pub, 0o644); err != nil {
		return errors.Join(err, os.Remove(private))
	}
	if _, err = fmt.Fprintf(o.out, "%s\n%s\n", private, public); err != nil {
		return errors.Join(err, os.Remove(private), os.Remove(public)) // nobody has used them yet
	}
	return nil
}

// noneThere refuses files that are there: a key is never replaced.
func noneThere(names ...string) error {
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return &fault.Error{
				Reason: fault.Conflict, Op: "write key", Subject: name, Err: errors.New("already exists"),
				Hint: "a key that is replaced is lost: choose another name with -o, or move the file away",
			}
		}
	}
	return nil
}
