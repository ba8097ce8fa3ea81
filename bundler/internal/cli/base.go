package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// checkBase refuses what cannot be a delta.
func (o *pullOptions) checkBase(dest place) error {
	if o.base == "" || dest.medium != inRegistry {
		return nil
	}
	return flags.Bad("-o", dest.String(), errors.New("a delta is not a complete bundle, and a registry holds only such"),
		"write the delta to FILE.tar or oci:DIR, and push it where its base is")
}

// openBase reads what --base names, a bundle or a receipt; nil where it is not given.
func (o *pullOptions) openBase(ctx context.Context, client *remote.Client) (*pull.Base, error) {
	if o.base == "" {
		return nil, nil
	}
	p, err := parsePlace(o.base)
	if err != nil || p.medium == inFile && beginsReceipt(p.path) {
		return readReceipt(o.base) // which says what is wrong with a file of another name
	}
	return o.baseOf(ctx, p, client)
}

// beginsReceipt tells a receipt, which is JSON, from an archive and its parts file.
func beginsReceipt(name string) bool {
	f, err := userfile.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	var first [1]byte
	_, err = f.Read(first[:])
	return err == nil && first[0] == '{'
}

func readReceipt(name string) (*pull.Base, error) {
	data, err := userfile.Read("--base", name, bundle.MaxReceiptSize)
	if err != nil {
		return nil, err
	}
	r, err := bundle.ParseReceipt(name, data)
	if err != nil {
		return nil, err
	}
	return pull.BaseOfReceipt(r), nil
}

func (o *pullOptions) baseOf(ctx context.Context, p place, client *remote.Client) (*pull.Base, error) {
	source, err := o.openSource(ctx, p, client)
	if err != nil {
		return nil, err
	}
	b, err := resolved(ctx, source, verify.Rules{}, run.Options{Concurrency: o.concurrency, Now: o.now})
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
