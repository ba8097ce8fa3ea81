package vdoctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

// operatorStatus is how the operator itself fares: of its Deployment, and of the Lease by
// which its replicas choose who works.
type operatorStatus struct {
	Installed bool       `json:"installed"`
	Version   string     `json:"version,omitempty"` // of the bundle that it was installed from, else the image
	Ready     string     `json:"ready,omitempty"`   // pods: "1/1"
	Leader    string     `json:"leader,omitempty"`  // pod; "" while none leads, or where replicas elect none
	Renewed   *time.Time `json:"renewed,omitempty"` // when that was last said
	Unread    []string   `json:"unread,omitempty"`  // what of this may not be read
}

// operator reads how the operator fares. One that runs outside of the cluster has no Deployment, and a leader. Who
// may not read that sees all the rest.
func (r *statusReport) operator(ctx context.Context, c client.Reader, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: operatorDeployment}
	var lease coordinationv1.Lease
	var d appsv1.Deployment
	var missing bool // the Deployment
	for _, x := range []client.Object{&lease, &d} {
		err := c.Get(ctx, key, x)
		object := kindOf(x) + " " + key.String()
		switch {
		case apierrors.IsForbidden(err):
			r.Operator.Unread = append(r.Operator.Unread, object)
			r.wait(object, "Forbidden", "vdoctl cannot read it: "+err.Error())
		case isGone(err):
			missing = x == client.Object(&d)
		case err != nil:
			return clusterstate.Fault("read "+object, err)
		}
	}
	if holder := lease.Spec.HolderIdentity; holder != nil { // POD_UUID; who is gone is named until another one leads
		r.Operator.Leader, _, _ = strings.Cut(*holder, "_")
	}
	if lease.Spec.RenewTime != nil && r.Operator.Leader != "" {
		r.Operator.Renewed = &lease.Spec.RenewTime.Time
	}
	switch {
	case d.Name != "":
		r.deployed(&d)
	case missing && r.Operator.Leader == "":
		r.wait("Deployment "+key.String(), "NotFound", "there is no operator in namespace "+namespace+": `vdoctl deploy BUNDLE` "+
			"installs one; where it is in another namespace, name that with -n; one that runs beside the cluster is seen "+
			"by its Lease, with --leader-elect")
	}
	return nil
}

func (r *statusReport) deployed(d *appsv1.Deployment) {
	object := "Deployment " + d.Namespace + "/" + d.Name
	want := ptr.Deref(d.Spec.Replicas, 1)
	r.Operator.Installed, r.Operator.Version = true, operatorVersion(d)
	r.Operator.Ready = fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, want)
	switch {
	case want == 0:
		r.wait(object, "Incomplete", "the operator is scaled to 0, and nothing below is kept up to date: `kubectl -n "+d.Namespace+" scale deployment "+operatorDeployment+" --replicas=1`")
	case d.Status.ReadyReplicas < want:
		r.wait(object, "Incomplete", fmt.Sprintf("%d of %d pods of the operator are ready: `kubectl -n %s describe pods -l app.kubernetes.io/name=%s`", d.Status.ReadyReplicas, want, d.Namespace, operatorDeployment))
	}
}

// operatorVersion is the release that a bundle's operator is, or its image.
func operatorVersion(d *appsv1.Deployment) string {
	version := d.Annotations[deploy.AnnotationVersion]
	for _, c := range d.Spec.Template.Spec.Containers {
		version = cmp.Or(version, c.Image)
	}
	return version
}

func (s operatorStatus) says() string {
	text := dash(s.Version) + ", " + s.Ready + " ready"
	if !s.Installed {
		text = "it runs beside the cluster"
	}
	if s.Leader != "" {
		text += ", " + s.Leader + " leads"
	}
	return text
}
