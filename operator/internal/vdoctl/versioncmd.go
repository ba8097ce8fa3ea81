package vdoctl

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// versionReport is what version prints: what was seen, nothing that was computed.
type versionReport struct {
	Client     command.Build     `json:"client"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	Operator   string            `json:"operator,omitempty"` // its image
	Drivers    map[string]string `json:"drivers,omitempty"`  // the image of each workload, by its name
	VCenters   map[string]string `json:"vcenters,omitempty"` // as the operator last saw them
	Unread     []string          `json:"unread,omitempty"`   // what could not be read, and why
}

type versionOptions struct {
	*app

	clientOnly bool
}

func newVersionCommand(a *app) *cobra.Command {
	o := &versionOptions{app: a}
	cmd := runs(o.run, &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of what runs in the cluster",
		Long: `Shows the version of this program, and what is seen in the cluster: the API server's
version, the images of the operator and of the drivers' workloads, and the vCenters'
versions.`,
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

// observe reads the images of workloads, and what the operator saw of the vCenters, up to what cannot be read.
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
	if r.Operator, err = imageOf(ctx, c, "Deployment", o.cluster.namespace, operatorDeployment); err != nil {
		return err
	}
	status, err := readStatus(ctx, c, o.cluster.namespace)
	for _, v := range status.VCenters {
		if v.Version != "" {
			r.VCenters[v.Server] = v.Version
		}
	}
	if err != nil && fault.ReasonOf(err) != fault.NotFound { // the operator's kinds may not be known
		return err
	}
	for _, p := range drivers.Places() {
		image, err := imageOf(ctx, c, p.Kind, p.Namespace, p.Name)
		if err != nil {
			return err
		}
		if image != "" {
			r.Drivers[p.Namespace+"/"+p.Name] = image
		}
	}
	return nil
}

// imageOf is the image of a workload's first container, or "" where it is not there.
func imageOf(ctx context.Context, c client.Reader, kind, namespace, name string) (string, error) {
	u := unnamespaced("apps/v1", kind, name)
	u.SetNamespace(namespace)
	switch err := c.Get(ctx, client.ObjectKeyFromObject(u), u); {
	case isGone(err):
		return "", nil
	case err != nil:
		return "", clusterstate.Fault("read "+describeObject(u), err)
	}
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return "", nil
	}
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	return image, nil
}

func (r *versionReport) text(l *lines) {
	t := command.NewTable()
	t.Row("vdoctl", strings.TrimPrefix(r.Client.String(), r.Client.Program+" ")) // the row says whose
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
