package vdoctl

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

type versionReport struct {
	Client     command.Build     `json:"client"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	Operator   string            `json:"operator,omitempty"` // its release, else its image
	Drivers    map[string]string `json:"drivers,omitempty"`  // by name
	VCenters   map[string]string `json:"vcenters,omitempty"` // as the operator last saw them
	Unread     []string          `json:"unread,omitempty"`   // missing versions, and why
}

type versionOptions struct {
	*app

	clientOnly bool
}

func newVersionCommand(a *app) *cobra.Command {
	o := &versionOptions{app: a}
	cmd := runs(o.run, &cobra.Command{
		Use: "version", Short: "Show the versions of vdoctl, cluster and drivers",
		Long: `Shows the version of vdoctl, of the API server and, from the status, of the operator, the drivers
and the vCenters.`,
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.clientOnly, "client", false, "this program alone; no cluster is asked")
	})
	o.bindFormat(cmd)
	return cmd
}

func (o *versionOptions) run(ctx context.Context) error {
	r := versionReport{Client: o.build}
	var err error
	if !o.clientOnly {
		err = o.observe(ctx, &r)
	}
	for _, f := range fault.All(err) {
		r.Unread = append(r.Unread, f.Error())
	}
	return fault.Join(err, o.print(r, r.text))
}

// observe reads the cluster's version and the operator's status, up to the first unreadable part.
func (o *versionOptions) observe(ctx context.Context, r *versionReport) error {
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return clusterstate.Fault("reach the cluster", err)
	}
	server, err := d.ServerVersion()
	if err != nil {
		return clusterstate.Fault("ask the cluster for its version", err)
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	r.Kubernetes, r.Drivers, r.VCenters = server.GitVersion, map[string]string{}, map[string]string{}
	status, err := readStatus(ctx, c, o.cluster.namespace)
	r.Operator = status.Operator.Version
	for _, x := range status.Drivers {
		r.Drivers[x.Driver] = x.Version
	}
	for _, v := range status.VCenters {
		if v.Version != "" {
			r.VCenters[v.Server] = v.Version
		}
	}
	if fault.ReasonOf(err) == fault.NotFound { // the cluster lacks the operator's kinds
		return nil
	}
	return err
}

func (r *versionReport) text(l *lines) {
	t := command.NewTable()
	t.Row("vdoctl", strings.TrimPrefix(r.Client.String(), r.Client.Program+" ")) // the row names the program
	if r.Kubernetes != "" {
		t.Row("kubernetes", r.Kubernetes)
		t.Row("vdo-operator", dash(r.Operator))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Drivers)) {
		t.Row(name, r.Drivers[name])
	}
	for _, server := range slices.Sorted(maps.Keys(r.VCenters)) {
		t.Row("vCenter "+server, r.VCenters[server])
	}
	l.table(t)
}
