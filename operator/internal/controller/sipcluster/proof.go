package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// maxPods bounds the pods of a service that are read: its tenant may make many.
const maxPods = 32

// whoLeads says which pod may still lead to a host that leaves, and why; "" for none. That the API
// server has the new configuration is not enough: a pod that was replaced goes on with its open
// connections for minutes.
func (p *pass) whoLeads(ctx context.Context) (string, error) {
	for _, s := range p.rendered.Services {
		if s.Kind == services.Auth {
			continue
		}
		var pods corev1.PodList
		err := p.Reader.List(ctx, &pods, client.InNamespace(p.key.Namespace), client.MatchingLabels(services.PodLabels(s.Name)), client.MatchingFieldsSelector{Selector: notEnded}, client.Limit(maxPods))
		if err != nil {
			return "", podsFault(p.key.Namespace, err)
		}
		if pods.Continue != "" {
			return fmt.Sprintf("%s has more than %d pods", s.Name, maxPods), nil
		}
		for i := range pods.Items {
			if why := mayLead(&pods.Items[i]); why != "" {
				return fmt.Sprintf("pod %s %s", pods.Items[i].Name, why), nil
			}
		}
	}
	return p.leadsOn(ctx)
}

// notEnded is a pod that has not ended: of others, as of those that were evicted, there may be any number.
var notEnded = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// leadsOn says which pod is there of a service that is not: one that was taken out of the spec, or
// any, where the SIPCluster is deleted. Only who deletes a Deployment in the foreground waits for its
// pods: others, as the namespace's deletion, leave them until they have ended, or for ever.
func (p *pass) leadsOn(ctx context.Context) (string, error) {
	gone := slices.DeleteFunc(services.LeadingNames(p.key.Name), func(name string) bool { return p.state(name) != nil })
	if len(gone) == 0 {
		return "", nil
	}
	of, err := services.PodsOf(gone)
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	err = p.Reader.List(ctx, &pods, client.InNamespace(p.key.Namespace), client.MatchingLabelsSelector{Selector: of}, client.MatchingFieldsSelector{Selector: notEnded}, client.Limit(1))
	switch {
	case err != nil:
		return "", podsFault(p.key.Namespace, err)
	case len(pods.Items) == 0:
		return "", nil
	case !pods.Items[0].DeletionTimestamp.IsZero():
		return "pod " + pods.Items[0].Name + " " + ending, nil
	}
	return "pod " + pods.Items[0].Name + " " + alone, nil
}

const (
	ending = "is ending, and what is open goes on until then"
	alone  = "runs on though its Deployment is gone: delete it, if nothing else does"
)

// mayLead tells why a pod may lead elsewhere than was rendered; "" where it does not. One that a
// controller has was made from what was rendered: the Deployment is rolled out.
func mayLead(pod *corev1.Pod) string {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return ending
	case metav1.GetControllerOf(pod) == nil:
		return alone
	}
	return ""
}

func podsFault(namespace string, err error) error {
	f := &fault.Error{Reason: fault.Unreachable, Op: "list pods in", Subject: "namespace " + namespace, Err: err}
	if apierrors.IsForbidden(err) {
		f.Reason, f.Err = fault.Forbidden, errors.New("the operator may not, so that no host can be given back")
		f.Hint = "apply the manifests of this release, `vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`: " +
			"a RoleBinding is not enough, since it goes with the namespace"
	}
	return f
}
