package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
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

	operatorUnread bool
}

type versionOptions struct {
	*app
	outputFlags

	clientOnly bool
}

func newVersionCommand(a *app) *cobra.Command {
	o := &versionOptions{app: a}
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of what runs in the cluster",
		Long: `Shows the version of this program, and what is seen in the cluster: the API server's
version, the images of the operator and of the drivers' workloads, and the vCenters'
versions.`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.clientOnly, "client", false, "this program alone; no cluster is asked")
	})
	o.outputFlags.bind(cmd)
	return cmd
}

func (o *versionOptions) run(ctx context.Context) error {
	r := versionReport{Client: o.build}
	var err error
	if !o.clientOnly {
		if err = o.observe(ctx, &r); err != nil {
			for _, f := range fault.All(err) {
				r.Unread = append(r.Unread, f.Error())
			}
		}
	}
	if err := o.print(o.out, r, r.text); err != nil {
		return err
	}
	return err
}

func (o *versionOptions) observe(ctx context.Context, r *versionReport) error {
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return clusterFault("reach the cluster", err)
	}
	server, err := d.ServerVersion()
	if err != nil {
		return clusterFault("ask the cluster for its version", err)
	}
	r.Kubernetes = server.GitVersion
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	return r.observe(ctx, c, o.cluster.namespace)
}

// observe reads the images of workloads, and what the operator saw of the vCenters. What may
// not be read hides nothing else.
func (r *versionReport) observe(ctx context.Context, c client.Reader, namespace string) error {
	var missed unreadable
	var err error
	if r.Operator, err = imageOf(ctx, c, "Deployment", namespace, operatorDeployment); err != nil {
		r.operatorUnread = true
		missed.note("read the operator's Deployment", err)
	}
	r.Drivers, r.VCenters = map[string]string{}, map[string]string{}
	for _, p := range drivers.Places() {
		image, err := imageOf(ctx, c, p.Kind, p.Namespace, p.Name)
		switch {
		case err != nil:
			missed.note("read "+p.String(), err)
		case image != "":
			r.Drivers[p.Namespace+"/"+p.Name] = image
		}
	}
	if err := r.vcenters(ctx, c, namespace); err != nil {
		missed.note("read the status", err)
	}
	return missed.err()
}

// unreadable gathers what could not be read: rights that are missing are told together.
type unreadable struct {
	rights []string
	errs   []error
}

func (u *unreadable) note(op string, err error) {
	if right := clusterstate.MissingRight(err); right == "" {
		u.errs = append(u.errs, clusterFault(op, err))
	} else if !slices.Contains(u.rights, right) {
		u.rights = append(u.rights, right)
	}
}

func (u *unreadable) err() error {
	if len(u.rights) > 0 {
		u.errs = append(u.errs, &fault.Error{Reason: fault.Forbidden, Op: "read what runs", Err: errors.New("your account has no right to " + firstOf(u.rights)),
			Hint: "have a role with these rights bound to it, or use another account"})
	}
	return fault.Join(u.errs...)
}

// vcenters notes what the operator saw of them. Where its kinds are not known there is nothing.
func (r *versionReport) vcenters(ctx context.Context, c client.Reader, namespace string) error {
	status, err := readStatus(ctx, c, namespace)
	if fault.ReasonOf(err) == fault.NotFound {
		return nil
	}
	for _, v := range status.VCenters {
		if v.Version != "" {
			r.VCenters[v.Server] = v.Version
		}
	}
	return err
}

// imageOf is the image of a workload's first container, or "" where it is not there.
func imageOf(ctx context.Context, c client.Reader, kind, namespace, name string) (string, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	var d appsv1.Deployment
	var s appsv1.DaemonSet
	spec, object := &d.Spec.Template.Spec, client.Object(&d)
	if kind == "DaemonSet" {
		spec, object = &s.Spec.Template.Spec, &s
	}
	if err := c.Get(ctx, key, object); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if len(spec.Containers) == 0 {
		return "", nil
	}
	return spec.Containers[0].Image, nil
}

// withoutOperator is what is said in place of the operator's image.
func (r *versionReport) withoutOperator() string {
	if r.operatorUnread {
		return "not known, since it cannot be read"
	}
	return "not installed"
}

func (r *versionReport) text(w io.Writer) error {
	t := command.NewTable()
	t.Row("vdoctl", strings.TrimPrefix(r.Client.String(), r.Client.Program+" ")) // the row says whose
	if r.Kubernetes != "" {
		t.Row("kubernetes", r.Kubernetes)
		t.Row("vdo-operator", cmp.Or(r.Operator, r.withoutOperator()))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Drivers)) {
		t.Row(name, r.Drivers[name])
	}
	for _, server := range slices.Sorted(maps.Keys(r.VCenters)) {
		t.Row("vCenter "+server, r.VCenters[server])
	}
	return t.Write(w)
}
