package vdoctl

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// accountSites are the accounts of a configuration, and the sessions at their vCenters.
type accountSites struct {
	list  []*accounts.Site
	open  []*vcenter.Admin
	nodes []preflight.Node
}

func (l *accountSites) close() {
	for _, a := range l.open {
		a.Close()
	}
}

// sites are the accounts of the configuration, with a session at each of their vCenters.
func (o *accountOptions) sites(ctx context.Context) (out accountSites, err error) {
	c, err := o.cluster.client()
	if err != nil {
		return out, err
	}
	s, state, err := o.configuration(ctx, o.siteFlags, false)
	if err = fault.Join(err, state.Err); err != nil {
		return out, err
	}
	if o.makes {
		if err := s.unresolved(); err != nil { // be it of another Secret: which driver is meant is not known
			return out, err
		}
	}
	s.preferAsked, o.looked, out.nodes = true, map[string]asked{}, state.Nodes
	if err := o.asks(o.app, &s); err != nil {
		return out, err
	}
	var system corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		return out, clusterFault("read namespace kube-system", err)
	}
	var errs []error
	for _, v := range s.vcenters {
		if o.secret == "" || v.config != nil && v.config.Spec.Credentials == o.secret {
			errs = append(errs, o.addTo(ctx, c, &out, v, configuration{s, state.Nodes}))
		}
	}
	for _, at := range out.list {
		at.Cluster, at.Wait = string(system.UID), o.timeout
	}
	if len(errs) == 0 {
		errs = append(errs, &fault.Error{Reason: fault.NotFound, Op: "find the accounts of the configuration", Err: errors.New("no VsphereCloudConfig names the Secret"), Hint: "correct --secret, or apply a VsphereCloudConfig"})
	}
	return out, fault.Join(errs...)
}

// addTo logs in to a vCenter, and adds it to the account of its Secret.
func (o *accountOptions) addTo(ctx context.Context, c client.Client, l *accountSites, v configured, in configuration) error {
	target, err := in.site.target(ctx, v)
	if err != nil {
		return err
	}
	at, err := o.siteFor(ctx, c, &l.list, v)
	if err != nil {
		return err
	}
	admin, err := vcenter.Open(ctx, target)
	if err != nil {
		return err
	}
	l.open = append(l.open, admin)
	at.Places = append(at.Places, o.place(v, admin, target, vcenter.Ask{Nodes: in.nodes, Features: o.features(&in.site, v)}))
	return nil
}

// configuration is what the accounts are for.
type configuration struct {
	site  site
	nodes []preflight.Node
}

// siteFor is the account of a vCenter's Secret: in the resource's namespace or, where it is
// there, in kube-system.
func (o *accountOptions) siteFor(ctx context.Context, c client.Client, list *[]*accounts.Site, v configured) (*accounts.Site, error) {
	name, ns := v.config.Spec.Credentials, cmp.Or(v.config.Namespace, o.cluster.namespace) // a file need not name it
	var there corev1.Secret
	for _, at := range []string{credentials.Fallback, ns} {
		err := c.Get(ctx, client.ObjectKey{Namespace: at, Name: name}, &there)
		if client.IgnoreNotFound(err) != nil {
			return nil, clusterFault("read Secret "+at+"/"+name, err)
		}
		if err == nil {
			ns = at
		}
	}
	for _, s := range *list {
		if s.Namespace == ns && s.Secret == name {
			return s, nil
		}
	}
	s := &accounts.Site{API: c, Namespace: ns, Secret: name}
	*list = append(*list, s)
	return s, nil
}
