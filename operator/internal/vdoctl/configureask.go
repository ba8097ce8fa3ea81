package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/charmbracelet/huh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// answers are what is asked for.
type answers struct {
	bundle, vcenter, server, port, certificate, thumbprint, caFile string
	username, password, datacenters, drivers, region, zone         string
	upgrade                                                        string
}

// How a vCenter's certificate is checked.
const (
	byThumbprint, byCA, bySystem = "thumbprint", "ca-file", "system"
)

// The drivers that may be asked for.
const bothDrivers, csiAlone, cpiAlone = "both", "csi", "cpi"

// field is one question: a flag, and what is asked where the flag is not given.
type field struct {
	flag, title, usage, standard string
	to                           *string
	choices                      []string
	valid                        func(string) error
	needed                       func() bool // nil: always
}

func (a *answers) fields() []field {
	return []field{
		{flag: "bundle", title: "Bundle in the mirror", usage: "`REGISTRY/REPO:TAG` of the bundle in the site's mirror", to: &a.bundle, valid: isReference},
		{flag: "drivers", title: "Which drivers", usage: "which drivers (`WHICH`): both, csi or cpi", standard: bothDrivers, to: &a.drivers, choices: []string{bothDrivers, csiAlone, cpiAlone}, valid: oneOf(bothDrivers, csiAlone, cpiAlone)},
		{flag: "vcenter", title: "Name for the vCenter", usage: "`NAME` of the vCenter's resource", standard: "vcenter", to: &a.vcenter, valid: required},
		{flag: "server", title: "Address of the vCenter", usage: "`HOST` name or IP address of the vCenter, without https:// and port", to: &a.server, valid: isHost},
		{flag: "port", title: "Port of its API", usage: "`PORT` of its API", standard: "443", to: &a.port, valid: isPort},
		{flag: "certificate", title: "How its certificate is checked", usage: "`HOW` its certificate is checked: system, thumbprint or ca-file", standard: bySystem, to: &a.certificate, choices: []string{bySystem, byThumbprint, byCA}, valid: oneOf(bySystem, byThumbprint, byCA)},
		{flag: "thumbprint", title: "Thumbprint of its certificate", usage: "`HEX` pairs with colons, SHA-1 or SHA-256, of its certificate", to: &a.thumbprint, valid: required, needed: func() bool { return a.certificate == byThumbprint }},
		{flag: "vcenter-ca-file", title: "File with its authority's certificate", usage: "PEM `FILE` of the authority that signed its certificate", to: &a.caFile, valid: isFileThere, needed: func() bool { return a.certificate == byCA && a.caFile != keptCA }},
		{flag: "username", title: "Account of the drivers", usage: "`NAME@DOMAIN` of the vCenter's account", to: &a.username, valid: required},
		{flag: "datacenters", title: "Datacenters, with commas", usage: "inventory `PATHS` of datacenters, with commas; none for all", to: &a.datacenters},
		{flag: "region-category", title: "Tag category of regions", usage: "`CATEGORY` of tags of regions; none without topology", to: &a.region, valid: a.withZone},
		{flag: "zone-category", title: "Tag category of zones", usage: "`CATEGORY` of tags of zones; together with regions", to: &a.zone, valid: required, needed: func() bool { return a.region != "" }},
		{flag: "upgrade", title: "Upgrades", usage: "Automatic, or Manual (`HOW`): each one waits for consent", standard: "Automatic", to: &a.upgrade, choices: []string{"Automatic", "Manual"}, valid: oneOf("Automatic", "Manual")},
	}
}

// withZone refuses zones without regions; that regions need zones is asked by the next field.
func (a *answers) withZone(region string) error {
	if region == "" && a.zone != "" {
		return errors.New("zones need regions: give both categories, or none")
	}
	return nil
}

func required(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("it is needed")
	}
	return nil
}

func isReference(s string) error {
	if err := required(s); err != nil {
		return err
	}
	_, err := image.ParseReference(s)
	return err
}

func isHost(s string) error {
	if strings.ContainsAny(s, "/@ ") {
		return errors.New("a host name or IP address alone: without https://, path or user")
	}
	return required(s)
}

func isPort(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
		return errors.New("not a number from 1 to 65535")
	}
	return nil
}

func isFileThere(s string) error {
	if info, err := os.Stat(s); err != nil || !info.Mode().IsRegular() {
		return errors.New("there is no such file")
	}
	return nil
}

func oneOf(choices ...string) func(string) error {
	return func(s string) error {
		for _, c := range choices {
			if s == c {
				return nil
			}
		}
		return fmt.Errorf("not one of %s", strings.Join(choices, ", "))
	}
}

// tryVCenter tries the answers at the vCenter, and asks again for what is wrong.
func (o *configureOptions) tryVCenter(ctx context.Context, d *draft) error {
	for {
		target, err := o.target(d)
		if err != nil {
			return err
		}
		p := o.progress()
		p.show("asking " + target.Address())
		report, err := vcenter.Check(ctx, target)
		p.end()
		if err == nil {
			if o.prompts != nil {
				_, _ = fmt.Fprintf(o.err, "vCenter %s answers: version %s, user %s\n", target.Address(), report.Version, report.User)
			}
			return nil
		}
		if o.prompts == nil || ctx.Err() != nil {
			return err
		}
		command.Report(o.err, err, false)
		if err := o.askAgain(ctx, d, fault.ReasonOf(err)); err != nil {
			return err
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
		if err := o.ask(ctx, f); err != nil {
			return err
		}
	}
	if again["username"] {
		return o.readPassword(ctx, d, true)
	}
	return nil
}

// target is the vCenter as the answers have it.
func (o *configureOptions) target(d *draft) (vcenter.Target, error) {
	port, _ := strconv.Atoi(o.port) // it was checked
	t := vcenter.Target{Host: o.server, Port: port, Username: o.username, Password: vcenter.Password(o.password), Datacenters: splitList(o.datacenters)}
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
	return o.read(o.caFile)
}

// splitList parts a list that was typed with commas.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// question is what is asked on a terminal.
type question struct {
	title, help, value string
	secret             bool
	choices            []string
	valid              func(string) error
}

// prompter asks a person.
type prompter interface {
	ask(ctx context.Context, q question) (string, error)
}

// terminalPrompts asks on a terminal: drawn, or line by line.
type terminalPrompts struct {
	in         io.Reader
	out        io.Writer
	accessible bool
}

func (t *terminalPrompts) ask(ctx context.Context, q question) (string, error) {
	answer := q.value
	var f huh.Field
	if len(q.choices) > 0 {
		f = huh.NewSelect[string]().Title(q.title).Options(huh.NewOptions(q.choices...)...).Value(&answer)
	} else {
		input := huh.NewInput().Title(q.title).Description(q.help).Value(&answer)
		if q.valid != nil {
			input = input.Validate(func(s string) error { return plainError(q.valid(strings.TrimSpace(s))) })
		}
		if q.secret {
			input = input.EchoMode(huh.EchoModePassword)
		}
		f = input
	}
	form := huh.NewForm(huh.NewGroup(f)).WithInput(t.in).WithOutput(t.out).WithAccessible(t.accessible).WithShowHelp(false)
	if err := form.RunWithContext(ctx); err != nil {
		if errors.Is(err, huh.ErrUserAborted) {
			return "", &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Err: errors.New("nothing was changed"), Hint: "run the same command again"}
		}
		return "", err
	}
	if shown := answer; t.out != nil && !t.accessible {
		if q.secret {
			shown = "(hidden)"
		}
		_, _ = fmt.Fprintf(t.out, "%s: %s\n", q.title, shown)
	}
	return answer, nil
}

// plainError is what is wrong, in one line.
func plainError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(cut(fault.Text(err), width))
}
