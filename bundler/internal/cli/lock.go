package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
)

// lockOptions are the flags of `lock`.
type lockOptions struct {
	*app
	selectionFlags
	matrixFlags
	sourceFlags
	registryFlags
	outputFlags
	dest string
}

func newLockCommand(a *app) *cobra.Command {
	o := &lockOptions{app: a}
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
	cmd.Flags().StringVarP(&o.dest, "output", "o", "-", "`FILE` to write the lock to, - for standard output")
	o.selectionFlags.bind(cmd)
	o.matrixFlags.bind(cmd)
	o.sourceFlags.bind(cmd)
	o.registryFlags.bind(cmd)
	o.bindFormat(cmd)
	o.bindQuiet(cmd)
	return cmd
}

func (o *lockOptions) run(ctx context.Context) error {
	in := lockInput{&o.selectionFlags, &o.matrixFlags, &o.sourceFlags, &o.registryFlags}
	w, err := in.world(o.app)
	if err != nil {
		return err
	}
	progress := o.reporter(o.app)
	locked, err := in.lock(ctx, o.app, w, progress)
	progress.end()
	if err != nil {
		return err
	}
	data, err := locked.Lock.YAML()
	if o.json() {
		data, err = locked.Lock.JSON()
	}
	if err != nil {
		return err
	}
	return o.deliver(o.dest, data, fmt.Sprintf(": %s, %s", command.Plural(len(locked.Lock.Releases), "release", "releases"), command.Plural(len(locked.Lock.Images), "image", "images")))
}

// lockInput are the flags that say what is locked, of `lock` and of `pull`.
type lockInput struct {
	*selectionFlags
	*matrixFlags
	*sourceFlags
	*registryFlags
}

// world opens what lock and pull read from, and reports all flags that are wrong.
func (in lockInput) world(a *app) (world, error) {
	var w world
	var errs [4]error
	w.matrix, errs[0] = in.openMatrix(a)
	w.client, errs[1] = in.client(a)
	w.registry, errs[2] = in.upstream(w.client, in.registryFlags)
	if errs[1] == nil {
		w.manifests, errs[3] = in.manifests(w.client, in.retries+1)
	}
	_, _, err := in.request()
	_, operatorErr := in.operatorInput()
	_, jumpHostErr := in.jumpHostInput()
	return w, fault.Distinct(fault.Join(append(errs[:], err, operatorErr, jumpHostErr)...))
}

func (in lockInput) lock(ctx context.Context, a *app, w world, p run.Progress) (*lock.Locked, error) {
	request, platform, err := in.request()
	operator, operatorErr := in.operatorInput()
	jumpHost, jumpHostErr := in.jumpHostInput()
	if err := fault.Join(err, operatorErr, jumpHostErr); err != nil {
		return nil, err
	}
	locked, err := lock.Make(ctx, lock.Input{
		Matrix: w.matrix, Request: request, Platform: platform, Operator: operator, JumpHost: jumpHost,
		Manifests: w.manifests, Registry: w.registry,
	}, in.options(a, p))
	if err != nil {
		return nil, err
	}
	for _, line := range movedLines(locked.Lock.Images) {
		p.Say(line)
	}
	return locked, nil
}

// movedLines tells which images are not taken from where their manifest says: one
// line for each reason. The lock has every one of them.
func movedLines(images []bundle.Image) []string {
	var out []string
	for n, i := range images {
		same := func(other bundle.Image) bool { return other.Why() == i.Why() }
		count := 0
		for _, other := range images {
			if same(other) {
				count++
			}
		}
		switch {
		case i.Why() == "" || slices.IndexFunc(images, same) != n:
		case count > 1:
			out = append(out, fmt.Sprintf("moved: %d images: %s", count, i.Why()))
		case i.Source == i.Reference:
			out = append(out, fmt.Sprintf("replaced: %s is taken: %s", i.Reference, i.Why()))
		default:
			out = append(out, fmt.Sprintf("moved: %s is taken from %s: %s", i.Reference, i.Source, i.Why()))
		}
	}
	return out
}
