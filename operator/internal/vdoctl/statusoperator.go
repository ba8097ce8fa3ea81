package vdoctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// operatorStatus is how the operator itself fares: of its Deployment, and of the Lease by
// which its replicas choose who works.
type operatorStatus struct {
	Installed bool       `json:"installed"`
	Version   string     `json:"version,omitempty"` // of the bundle that it was installed from, else the image's tag or digest
	Ready     string     `json:"ready,omitempty"`   // pods: "1/1"
	Leader    string     `json:"leader,omitempty"`  // pod; "" while none leads, or where replicas elect none
	Renewed   *time.Time `json:"renewed,omitempty"` // when that was last said
	Unread    []string   `json:"unread,omitempty"`  // what of this may not be read
}

// operator reads how the operator fares. One that runs outside of the cluster has no
// Deployment, and a leader. Who may not read that sees all the rest.
func (r *statusReport) operator(ctx context.Context, c client.Reader, namespace string) error {
	object := "Deployment " + namespace + "/" + operatorDeployment
	if err := r.unlessForbidden("Lease "+namespace+"/"+operatorDeployment, r.leader(ctx, c, namespace)); err != nil {
		return err
	}
	var d appsv1.Deployment
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: operatorDeployment}, &d); {
	case apierrors.IsForbidden(err):
		return r.unlessForbidden(object, err)
	case isGone(err) && r.Operator.Leader == "":
		r.wait(object, "NotFound", "there is no operator in namespace "+namespace+": `vdoctl deploy BUNDLE` installs one; where it is in another namespace, name that with -n; one that runs beside the cluster is seen by its Lease, with --leader-elect")
		return nil
	case isGone(err):
		return nil
	case err != nil:
		return clusterstate.Fault("read "+object, err)
	}
	r.deployed(&d)
	return nil
}

// unlessForbidden notes what may not be read, and returns any other error.
func (r *statusReport) unlessForbidden(object string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	r.Operator.Unread = append(r.Operator.Unread, object)
	r.wait(object, "Forbidden", "vdoctl cannot read it: "+err.Error())
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

// leader notes who leads. Who is gone without a word is named until another one leads.
func (r *statusReport) leader(ctx context.Context, c client.Reader, namespace string) error {
	var l coordinationv1.Lease
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: operatorDeployment}, &l)
	switch {
	case isGone(err):
		return nil
	case apierrors.IsForbidden(err):
		return err
	case err != nil:
		return clusterstate.Fault("read Lease "+namespace+"/"+operatorDeployment, err)
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
		return nil
	}
	r.Operator.Leader, _, _ = strings.Cut(*l.Spec.HolderIdentity, "_") // POD_UUID
	if l.Spec.RenewTime != nil {
		r.Operator.Renewed = &l.Spec.RenewTime.Time
	}
	return nil
}

// operatorVersion is the release that a bundle's operator is, or what its image is called.
func operatorVersion(d *appsv1.Deployment) string {
	if v := d.Annotations[deploy.AnnotationVersion]; v != "" {
		return v
	}
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	ref, err := image.ParseReference(d.Spec.Template.Spec.Containers[0].Image)
	switch {
	case err != nil:
		return ""
	case ref.Tag() != "":
		return ref.Tag()
	}
	digest := ref.Digest().String()
	return digest[:min(len(digest), len("sha256:")+12)]
}

func (o *statusOptions) ofOperator(s operatorStatus) string {
	var out []string
	switch {
	case s.Installed:
		out = append(out, dash(s.Version), s.Ready+" ready")
	case len(s.Unread) > 0:
		out = append(out, "not known")
	default:
		out = append(out, "not installed in namespace "+o.cluster.namespace)
	}
	if s.Leader == "" {
		if s.Installed {
			out = append(out, "none leads")
		}
		return strings.Join(out, ", ")
	}
	text := s.Leader + " leads"
	if !s.Installed {
		text = "one runs beside the cluster: " + text
	}
	if s.Renewed != nil && o.now().Sub(*s.Renewed) > time.Minute {
		text += fmt.Sprintf(" (last said %s ago)", o.now().Sub(*s.Renewed).Round(time.Second))
	}
	return strings.Join(append(out, text), ", ")
}

// sipStatus is one tenant cluster. Tenants write it in the end, so that none of it says
// whether the drivers are ready, and nothing is shown of what they can write freely.
type sipStatus struct {
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	Held          int32  `json:"held"`
	Wanted        int32  `json:"wanted"`
	ServicesReady int    `json:"servicesReady"`
	Services      int    `json:"services"`
	Ready         string `json:"ready"` // True, False, Unknown
	Reason        string `json:"reason,omitempty"`
}

// tenants reads the SIPClusters of all namespaces; none where the cluster has no such kind, or
// who asks may not see them.
func (r *statusReport) tenants(ctx context.Context, c client.Reader) error {
	var list airship.SIPClusterList
	err := pages.Each(ctx, c, &list, func() {
		for i := range list.Items {
			r.SIPClusters = append(r.SIPClusters, sipOf(&list.Items[i]))
		}
	})
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return clusterstate.Fault("read the status of SIPClusters", err)
}

func sipOf(s *airship.SIPCluster) sipStatus {
	out := sipStatus{
		Namespace: s.Namespace, Name: s.Name, Held: s.Status.Held, Wanted: s.Status.Wanted,
		Services: len(s.Status.Services), Ready: string(metav1.ConditionUnknown),
	}
	for _, one := range s.Status.Services {
		if one.Ready {
			out.ServicesReady++
		}
	}
	if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.ObservedGeneration == s.Generation {
		out.Ready, out.Reason = string(ready.Status), ready.Reason
	}
	return out
}

func (o *statusOptions) sipClusters(r statusReport) command.Table {
	t := command.NewTable("SIPCLUSTER", "HOSTS", "SERVICES", "READY", "REASON")
	for _, s := range r.SIPClusters {
		t.Row(s.Namespace+"/"+s.Name, fmt.Sprintf("%d/%d", s.Held, s.Wanted), fmt.Sprintf("%d/%d", s.ServicesReady, s.Services), s.Ready, dash(s.Reason))
	}
	return t
}
