package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// tryVCenter tries the answers at the vCenter, and asks again for what is wrong.
func (o *configureOptions) tryVCenter(ctx context.Context, d *draft, datacenters []string) error {
	for {
		target, err := o.target(d)
		if err != nil {
			return err
		}
		target.Datacenters = datacenters
		o.paced(&target)
		p := o.progress()
		p.show("asking " + target.Address())
		report, err := vcenter.Check(ctx, target)
		p.end()
		if o.seen = report.Datacenters; err == nil {
			if o.prompts != nil && len(datacenters) == 0 {
				_ = command.Say(o.err, "vCenter %s answers: version %s, user %s", target.Address(), report.Version, report.User)
			}
			return nil
		}
		err = o.inWords(err)
		if o.prompts == nil || ctx.Err() != nil {
			return err
		}
		command.Report(o.err, err, false)
		if err := o.askAgain(ctx, d, fault.ReasonOf(err)); err != nil {
			return err
		}
		if len(datacenters) > 0 {
			datacenters = splitList(o.datacenters)
		}
	}
}

// askAgain asks for the answers that a refusal is about.
func (o *configureOptions) askAgain(ctx context.Context, d *draft, why fault.Reason) error {
	again := map[string]bool{"server": true, "port": true}
	switch why {
	case fault.CertificateInvalid:
		again = map[string]bool{"certificate": true, "thumbprint": true, "vcenter-ca-file": true}
		if o.caFile == keptCA {
			o.caFile = ""
		}
	case fault.Unauthorized, fault.Forbidden, fault.AccountLocked:
		again = map[string]bool{"username": true}
	case fault.NotFound:
		again = map[string]bool{"datacenters": true}
	}
	for _, f := range o.fields() {
		if !again[f.flag] || f.needed != nil && !f.needed() {
			continue
		}
		if err := o.ask(ctx, f, true); err != nil {
			return err
		}
	}
	if again["username"] || o.password == d.password && !d.knows(o.server) {
		return o.readPassword(ctx, d, true)
	}
	return nil
}

// target is the vCenter as the answers have it.
func (o *configureOptions) target(d *draft) (vcenter.Target, error) {
	port, _ := strconv.Atoi(o.port) // it was checked
	t := vcenter.Target{Host: o.server, Port: port, Username: o.username, Password: vcenter.Password(o.password), Given: loginFlags}
	switch o.certificate {
	case byThumbprint:
		t.Trust.Thumbprint = o.thumbprint
	case byCA:
		ca, err := o.authority(d)
		t.Trust.CA = ca
		return t, err
	}
	return t, nil
}

// keptCA stands for the certificate that the resource has already.
const keptCA = "(as it is)"

// authority is the PEM of the vCenter's authority.
func (o *configureOptions) authority(d *draft) ([]byte, error) {
	if o.caFile == keptCA {
		return d.ca, nil
	}
	return o.readAuthority(o.caFile)
}

// readAuthority reads a file with certificates, and refuses one with more than these: it goes into a
// ConfigMap, and into a file that many read.
func (a *app) readAuthority(file string) ([]byte, error) {
	data, err := a.read("--vcenter-ca-file", file)
	if err != nil {
		return nil, err
	}
	if err = vcenter.CheckCA(data); bytes.Contains(data, []byte("PRIVATE KEY-----")) {
		err = errors.New("there is a private key in it") // a damaged one too, which no PEM reader sees
	}
	if err != nil {
		return nil, flags.Bad("--vcenter-ca-file", file, err, "name a PEM file with the authority's certificates, -----BEGIN CERTIFICATE-----, and nothing else")
	}
	return data, nil
}

// isAuthority has who types the name of another file asked again.
func isAuthority(file string) error {
	err := isFileThere(file)
	if err == nil {
		_, err = new(app).readAuthority(file)
	}
	return err
}

// loginFlags are what the account is given by.
const loginFlags = "--username, or its password: --password-file, " + passwordEnv + " or the prompt"

// notTried is what is said of a login that a resource's Secret has, and is not true of flags.
const notTried = "; it is not tried again before it changes, so that the account is not locked"

// The fields of resources that hints are about: as flags, and as questions.
var (
	asFlags = strings.NewReplacer("spec.vcIp", "--server", "spec.port", "--port", "spec.datacenters", "--datacenters", "the key that spec.ca names", "the file that --vcenter-ca-file names",
		"spec.ca", "--vcenter-ca-file", "spec.thumbprint", "--thumbprint", notTried, "")
	asQuestions = strings.NewReplacer("spec.vcIp", "the address", "spec.port", "the port", "spec.datacenters", "the datacenters", "the key that spec.ca names", "the file",
		"with spec.ca", "in a file (ca-file)", "spec.ca", "ca-file", "spec.thumbprint", "the thumbprint", loginFlags, "the account, or its password", notTried, "")
)

// inWords has the hints of a fault name what was given here: the resources whose fields they
// are about may not be there yet.
func (o *configureOptions) inWords(err error) error {
	words := asFlags
	if o.prompts != nil {
		words = asQuestions
	}
	for _, f := range fault.All(err) {
		f.Hint = words.Replace(f.Hint)
	}
	return err
}
