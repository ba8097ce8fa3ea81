package main

import (
	"context"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// wait leaves the world running.
func (d *demo) wait(ctx context.Context) error {
	d.out.heading("KEEP is set: the good bundle goes back under its tag")
	if err := d.sequence(ctx, d.isolated,
		"vdo-bundle push drivers2.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt",
		"kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=back --overwrite",
		"kubectl -n "+namespace+" wait --for=condition=Ready driverbundle/site --timeout=60s",
	); err != nil {
		return err
	}
	for _, one := range []struct {
		title string
		where *shell.Shell
	}{{"in the site, as its administrator", d.isolated}, {"on the connected host", d.connected}} {
		d.out.heading("To work %s, paste into another terminal", one.title)
		for _, line := range entering(one.where) {
			d.out.say("%s", line)
		}
	}
	d.out.say("export FLAGS=%s  # of lock and pull", fault.Quote(d.flags()))
	d.out.heading("Everything goes on running until Ctrl-C")
	d.out.say("mirror   %s, CA %s, login in %s", d.registries.Mirror, d.path("site/mirror-ca.crt"), d.path("site/docker/config.json"))
	d.out.say("vCenter  %s, CA %s, administrator %s, password %q", d.site.VCenter, d.path("site/vcenter-ca.crt"), d.site.Administrator, d.site.Password)
	d.out.say("operator log %s", d.path("vdo-operator.log"))
	d.kept = true
	<-ctx.Done()
	return nil
}

// entering returns the lines that give a new shell the directory, programs and settings of one of the demo's hosts.
func entering(where *shell.Shell) []string {
	path := fault.Quote(strings.Join(where.Path, ":"))
	out := []string{shell.CommandLine("cd", []string{where.Dir}), "export PATH=" + path + `:"$PATH"`}
	for _, v := range where.Env {
		if name, value, _ := strings.Cut(v, "="); name != "HOME" { // a person's shell keeps its own
			out = append(out, "export "+name+"="+fault.Quote(value))
		}
	}
	return out
}
