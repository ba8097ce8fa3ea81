package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// whoLeads says which pod of the services may still lead to a host that leaves, and why; ""
// for none. That the API server has the new configuration is not enough: a load balancer that
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
		err := p.Reader.List(ctx, &pods, client.InNamespace(p.key.Namespace), client.MatchingLabels(services.PodLabels(s.Name)), client.Limit(maxPods))
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
	return "", nil
}

// mayLead tells why a pod may lead elsewhere than was rendered; "" where it does not.
func (p *pass) mayLead(ctx context.Context, s services.Service, pod *corev1.Pod) string {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return ""
	case !pod.DeletionTimestamp.IsZero():
		return "is ending, and what is open goes on until then"
	case s.InForce == "":
		return "" // it was made from what was rendered: the Deployment is rolled out
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
		f.Hint = "apply deploy/sip/rbac.yaml of this release, and bind ClusterRole vdo-sip-services there by a RoleBinding: see deploy/README.md"
	}
	return f
}
