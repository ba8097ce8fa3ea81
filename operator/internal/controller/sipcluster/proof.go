package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// Bounds of asking the pods of one SIPCluster, which its tenant may make many and slow.
const (
	maxPods   = 32 // of a service
	asksFor   = 5 * time.Second
	maxAnswer = 128 // bytes
)

// whoLeads says which pod may still lead to a host that leaves, and why; "" for none. That the API server has the new configuration is not enough: a load balancer that
// was replaced goes on with its open connections for minutes, and a jump host follows its
// files when the kubelet has brought them, so that it is asked which are in force.
func (p *pass) whoLeads(ctx context.Context) (string, error) {
	asking, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
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
			if why := p.mayLead(asking, s, &pods.Items[i]); why != "" {
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

// mayLead tells why a pod may lead elsewhere than was rendered; "" where it does not.
func (p *pass) mayLead(ctx context.Context, s services.Service, pod *corev1.Pod) string {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return ending
	case s.InForce == "":
		return isAlone(pod)
	case pod.Status.PodIP == "":
		return "is starting"
	}
	ask := p.AskJumpHost
	if ask == nil {
		ask = askJumpHost
	}
	switch answer, err := ask(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(services.JumpHostProbes))); {
	case err != nil:
		return "does not say which configuration is in force: see that NetworkPolicies let the operator to port " + strconv.Itoa(services.JumpHostProbes) + " of it"
	case answer != s.InForce:
		return "does not have the new configuration yet"
	}
	return ""
}

// isAlone tells of a pod that nothing controls. Others were made from what was rendered: the
// Deployment is rolled out.
func isAlone(pod *corev1.Pod) string {
	if metav1.GetControllerOf(pod) == nil {
		return alone
	}
	return ""
}

// askJumpHost asks a pod which files are in force. Its address is the API server's word, its
// answer is compared and never shown.
func askJumpHost(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+jumphost.InForcePath, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 8 << 10} // through no proxy
	defer transport.CloseIdleConnections()
	one := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := one.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return strings.TrimSpace(string(text)), err
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
