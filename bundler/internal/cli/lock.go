package cli

import (
	"context"
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
)

// lockOptions are the flags of `lock`.
type lockOptions struct {
	lockFlags
}

func newLockCommand(a *app) *cobra.Command {
	o := &lockOptions{lockFlags: lockFlags{common: common{app: a}}}
	cmd := &cobra.Command{
		Use:   "lock [-o lock.yaml]",
		Short: "Choose releases and fix every manifest and image by digest",
		Long: `lock chooses driver releases from the compatibility matrix, reads their upstream
manifests, resolves every image that they name to a digest, and writes all of it
down. Pulling the same lock gives the same bundle, byte for byte.

With nothing asked for it takes the newest supported drivers for each of the last
three Kubernetes versions that the matrix covers.`,
		Example: `  vdo-bundle lock -o lock.yaml
  vdo-bundle lock --k8s 1.32-1.34 --vsphere 8.0.3 --platform linux/amd64 -o lock.yaml
  vdo-bundle lock --release csi@3.5.1 --release cpi@1.33.1 -o lock.yaml
  vdo-bundle lock --operator registry.example/vdo-operator:v1.2.3 --services sip -o lock.yaml`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.bindOutput(cmd, "`FILE` to write the lock to, - for standard output")
	return with(cmd, o.bindLock, o.registryFlags.bind, o.bindFormat, o.bindProgress)
}

func (o *lockOptions) run(ctx context.Context) error {
	w, err := o.world()
	if err != nil {
		return err
	}
	locked, _, err := o.lock(ctx, w)
	if err != nil {
		return err
	}
	data, err := locked.YAML()
	if o.json() {
		data, err = locked.JSON()
	}
	if err != nil {
		return err
	}
	return o.deliver(o.dest, data, fmt.Sprintf(": %s, %s",
		command.Plural(len(locked.Releases), "release", "releases"),
		command.Plural(len(locked.Images), "image", "images")))
}

// lockFlags say what is locked, of `lock` and of `pull`.
type lockFlags struct {
	common
	selectionFlags
	matrixFlags
	sourceFlags
}

func (f *lockFlags) bindLock(cmd *cobra.Command) {
	with(cmd, f.selectionFlags.bind, f.matrixFlags.bind, f.sourceFlags.bind)
}

// world opens what lock and pull read from, and reports all flags that are wrong.
func (f *lockFlags) world() (w world, err error) {
	var errs [7]error
	w.matrix, errs[0] = f.openMatrix(f.app)
	w.client, errs[1] = f.client(f.app)
	w.registry, errs[2] = f.upstream(w.client, &f.registryFlags)
	if errs[1] == nil {
		w.manifests, errs[3] = f.manifests(w.client)
	}
	w.request, w.platforms, errs[4] = f.request()
	w.operator, errs[5] = f.operatorInput()
	w.jumpHost, errs[6] = f.jumpHostInput()
	return w, fault.Distinct(fault.Join(errs[:]...))
}

func (f *lockFlags) lock(ctx context.Context, w world) (*bundle.Lock, catalog.Files, error) {
	locked, files, err := lock.Make(ctx, lock.Input{
		Matrix: w.matrix, Request: w.request, Platforms: w.platforms, Operator: w.operator, JumpHost: w.jumpHost,
		Manifests: w.manifests, Registry: w.registry,
	}, f.options())
	if err != nil {
		return nil, nil, err
	}
	for _, line := range movedLines(locked.Images) {
		f.reporter().Say(line)
	}
	return locked, files, nil
}

// movedLines tells which images are not taken from where their manifest says. The lock has
// all of it.
func movedLines(images []bundle.Image) (out []string) {
	for _, i := range images {
		switch {
		case i.Why() == "":
		case i.Source == i.Reference:
			out = append(out, fmt.Sprintf("replaced: %s is taken: %s", i.Reference, i.Why()))
		default:
			out = append(out, fmt.Sprintf("moved: %s is taken from %s: %s", i.Reference, i.Source, i.Why()))
		}
	}
	return out
}
