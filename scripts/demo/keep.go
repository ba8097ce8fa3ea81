package main

import (
	"context"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// wait leaves the world running.
func (d *demo) wait(ctx context.Context) error {
	d.out.heading("KEEP is set: the good bundle goes back under its tag")
	if err := d.sequence(ctx, d.isolated,
		words("vdo-bundle push drivers2.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt"),
		words("kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=back --overwrite"),
		words("kubectl -n "+namespace+" wait --for=condition=Ready driverbundle/site --timeout=60s"),
	); err != nil {
		return err
	}
	for _, e := range d.errands() {
		d.out.heading("To paste into another terminal: %s", e.title)
		for _, line := range e.lines() {
			d.out.say("%s", line)
		}
	}
	d.out.heading("Everything goes on running until Ctrl-C")
	d.out.say("mirror   %s, CA %s, login in %s", d.registries.Mirror, d.path("site/mirror-ca.crt"), d.path("site/docker/config.json"))
	d.out.say("vCenter  %s, CA %s, administrator %s, password %q", d.site.VCenter, d.path("site/vcenter-ca.crt"), d.site.Administrator, d.site.Password)
	d.out.say("operator log %s", d.path("vdo-operator.log"))
	<-ctx.Done()
	return nil
}

// errand is what a person does in one terminal of his own.
type errand struct {
	title string
	where *shell.Shell
	// commands are run there one after another.
	commands [][]string
}

// errands are what there is to do in the world that is kept. Each one may be done again.
func (d *demo) errands() []errand {
	look := errand{title: "look at the site, as its administrator", where: d.isolated, commands: [][]string{
		words("kubectl -n " + namespace + " get driverbundles,vspherecloudconfigs,vdoconfigs"),
		words("vdoctl status"),
		words("vdoctl plan"),
		words("vdoctl check"),
		words("vdo-bundle verify " + d.reference() + " --key vdo.pub --ca-file mirror-ca.crt"),
	}}
	account := errand{title: "give the drivers another account", where: d.isolated, commands: [][]string{
		{"export", "VDO_VCENTER_PASSWORD=" + d.site.Password},
		words("vdoctl users rotate --username " + d.site.Administrator + " --yes"),
		words("vdoctl users verify"),
	}}
	lock := errand{title: "make another bundle, on the connected host", where: d.connected, commands: [][]string{
		append(d.lock(everything[:3], "lock4.yaml"), "--replace"),
		append(words("vdo-bundle pull --lock lock4.yaml --sign-key vdo.key -o drivers4.tar"), d.registries.Flags...),
		{"cp", "drivers4.tar", d.path("site")},
	}}
	land := errand{title: "then land it in the mirror, in the site", where: d.isolated, commands: [][]string{
		words("vdo-bundle push drivers4.tar " + d.reference() + " --key vdo.pub --ca-file mirror-ca.crt"),
		words("kubectl -n " + namespace + " annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=landed --overwrite"),
		words("kubectl -n " + namespace + " wait --for=jsonpath={.status.handledReconcileAt}=landed driverbundle/site --timeout=60s"),
		words("vdoctl plan"),
	}}
	all := []errand{look, account, lock, land}
	if d.sip {
		all = append(all, errand{title: "make the tenant cluster again", where: d.isolated, commands: [][]string{
			words("kubectl apply -f tenant.yaml"), words(sipReady), words(showSIP), words(showHosts),
		}})
	}
	return all
}

// lines are what is typed, in a shell that knows nothing of the demo yet.
func (e errand) lines() []string {
	path := shell.Quote(strings.Join(e.where.Path, ":"))
	out := []string{shell.CommandLine("cd", []string{e.where.Dir}), "export PATH=" + path + `:"$PATH"`}
	for _, v := range e.where.Env {
		if !strings.HasPrefix(v, "HOME=") { // a person's shell keeps its own
			out = append(out, assignment(v))
		}
	}
	for _, c := range e.commands {
		if c[0] == "export" {
			out = append(out, assignment(c[1]))
			continue
		}
		out = append(out, shell.CommandLine(c[0], c[1:]))
	}
	return out
}

func assignment(v string) string {
	name, value, _ := strings.Cut(v, "=")
	return "export " + name + "=" + shell.Quote(value)
}
