package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

func (f *flags) deltaFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.base, "base", "", "make a delta: leave out the layers of this bundle, which the far side has")
	fl.StringVar(&f.have, "have", "", "make a delta: leave out the layers that this receipt of `push --receipt` names")
}

// checkBase refuses what cannot be a delta.
func (f *flags) checkBase(dest place) error {
	switch {
	case f.base == "" && f.have == "":
		return nil
	case f.base != "" && f.have != "":
		return badFlag("--have", f.have, errors.New("--base is given as well"), "name the one that says what the far side has")
	case dest.medium == inRegistry:
		return badFlag("-o", dest.String(), errors.New("a delta is no complete bundle, and a registry holds only such"),
			"write the delta to FILE.tar or oci:DIR, and push it where its base is")
	}
	return nil
}

// openBase reads what --base or --have names; nil where neither is given.
func (a *app) openBase(ctx context.Context, client *registry.Client) (*pull.Base, error) {
	f := a.flags
	if f.have != "" {
		data, err := userfile.Read("--have", f.have, bundle.MaxReceiptSize)
		if err != nil {
			return nil, err
		}
		r, err := bundle.ParseReceipt(f.have, data)
		if err != nil {
			return nil, err
		}
		return pull.BaseOfReceipt(r), nil
	}
	if f.base == "" {
		return nil, nil
	}
	p, err := parsePlace(f.base)
	if err != nil {
		return nil, err
	}
	source, err := a.openSource(ctx, p, client)
	if err != nil {
		return nil, err
	}
	b, err := resolved(ctx, source, verify.Rules{}, a.options(nil))
	if err != nil {
		return nil, fmt.Errorf("read the base %s: %w", p, err)
	}
	defer b.Close() //nolint:errcheck // only read
	base, err := pull.BaseOf(ctx, b.Bundle)
	if err != nil {
		return nil, fmt.Errorf("read the base %s: %w", p, err)
	}
	return base, nil
}

// checkReceipt looks, before anything is sent, whether the receipt can be written.
func (f *flags) checkReceipt() error {
	if f.receipt == "" {
		return nil
	}
	info, err := os.Stat(filepath.Dir(f.receipt))
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err != nil {
		return &fault.Error{Reason: fault.Storage, Op: "write receipt into", Subject: filepath.Dir(f.receipt), Err: userfile.WithoutPath(err),
			Hint: "name a file in a folder that is there with --receipt"}
	}
	return nil
}

func (f *flags) writeReceipt(r *bundle.Receipt) error {
	if f.receipt == "" || f.dryRun {
		return nil
	}
	data, err := r.JSON()
	if err != nil {
		return err
	}
	return userfile.Write(f.receipt, data, 0o644)
}

func (f *flags) mountFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.mountFrom, "mount-from", nil, "take over what this REGISTRY/REPO, of the same registry, has already: mounted there, or read from it (may be repeated)")
}

// mountRefs are the repositories of --mount-from.
func (f *flags) mountRefs(to place) (refs []image.Reference, err error) {
	var problems []error
	for _, s := range f.mountFrom {
		p, err := parsePlace(s)
		switch {
		case err != nil:
			problems = append(problems, err)
		case p.medium != inRegistry:
			problems = append(problems, badFlag("--mount-from", s, errors.New("it is no repository"), "write REGISTRY/REPO"))
		case to.medium == inRegistry && p.reference.Host() != to.reference.Host():
			problems = append(problems, badFlag("--mount-from", s, fmt.Errorf("it is not on %s", to.reference.Host()),
				"a registry takes over only what it has itself: name another repository of it"))
		default:
			refs = append(refs, p.reference)
		}
	}
	return refs, fault.Join(problems...)
}

// refuseDelta is for commands that need every layer of a bundle.
func refuseDelta(g *bundle.Graph) error {
	if g.Base == nil {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "serve", Subject: g.Root.Digest.String(), Err: fmt.Errorf("it is a delta, and %d layers are left to the base %s", len(g.Base.Layers), g.Base.Root),
		Hint: "name the bundle that has them with --base, push it into the registry that holds its base, or serve a bundle that was pulled without --base and --have",
	}
}
