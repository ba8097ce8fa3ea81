package cli

import (
	"context"
	"errors"

	"github.com/mattn/go-isatty"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// direct opens references as they are.
func direct(client *remote.Client) medium.Registry {
	return func(ref image.Reference) medium.Source { return client.Repository(ref) }
}

// resolved binds a source to its digest, and verifies it first where the rules have a
// policy. What is not returned is closed.
func resolved(ctx context.Context, source medium.Source, rules verify.Rules, o run.Options) (b opened, err error) {
	if rules.Policy == nil {
		b.Bundle, err = pinned.Open(ctx, source)
	} else {
		b.Bundle, b.verified, err = verify.Bundle(ctx, source, rules, o)
	}
	if err != nil {
		return opened{}, errors.Join(err, source.Close())
	}
	return b, nil
}

// unwrapped drops the outer operation and subject, where a better subject is known.
func unwrapped(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		return f.Err
	}
	return err
}

// openSource opens a bundle for reading.
func (a *app) openSource(ctx context.Context, p place, client *remote.Client) (medium.Source, error) {
	switch p.medium {
	case inFile:
		return archive.OpenFile(p.path)
	case inFolder:
		return archive.OpenDir(p.path)
	case inStream:
		return a.openInput(ctx)
	}
	return client.Repository(p.reference), nil
}

// openInput opens the archive that comes on standard input.
func (a *app) openInput(ctx context.Context) (medium.Source, error) {
	if a.in == nil || isatty.IsTerminal(a.in.Fd()) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: "standard input", Err: errors.New("it is a terminal"),
			Hint: "lead an archive into it: `vdo-bundle … - < drivers.tar`",
		}
	}
	return archive.OpenStream(ctx, "standard input", a.in)
}

// openTarget opens a place for writing; o is for archives and folders.
func (a *app) openTarget(p place, client *remote.Client, o archive.Options) (medium.Target, error) {
	switch p.medium {
	case inFile:
		return archive.CreateFile(p.path, o)
	case inFolder:
		return archive.CreateDir(p.path, o)
	case inStream:
		if f, ok := a.out.(interface{ Fd() uintptr }); ok && isatty.IsTerminal(f.Fd()) {
			return nil, &fault.Error{
				Reason: fault.InvalidInput, Op: "write", Subject: "standard output", Err: errors.New("it is a terminal"),
				Hint: "lead it into a file or a program: `vdo-bundle pull -o - > drivers.tar`",
			}
		}
		return archive.NewStreamWriter(a.out), nil
	}
	return client.Repository(p.reference), nil
}
