package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

func (r *Run) until(ctx context.Context, op string, look func() (string, error)) error {
	return clusterstate.Until(ctx, r.Wait, r.Poll, op, "see what holds it up, and run the same command again", look)
}

// drain evicts the node's pods and waits until they are gone. It follows kubectl's rules without its code, which
// depends on kubectl's commands.
func (r *Run) drain(ctx context.Context, _ VMs, m Machine) error {
	node := m.Node
	pods, err := r.leaving(ctx, node)
	if err != nil || len(pods) == 0 {
		return err
	}
	r.say(node, fmt.Sprintf("evicting %d pods", len(pods)))
	return r.until(ctx, "drain "+node, func() (string, error) {
		pods, _, err := r.pods(ctx, node)
		if err != nil {
			return "", err
		}
		var held []string
		for i := range pods {
			if pods[i].DeletionTimestamp != nil {
				continue
			}
			switch err := r.evict(ctx, &pods[i]); {
			case apierrors.IsTooManyRequests(err), errors.Is(err, context.DeadlineExceeded):
				held = append(held, name(&pods[i]))
			case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // its namespace deletes it
			case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
				return "", err
			}
		}
		switch {
		case len(held) > 0:
			return "disruption budgets block " + strings.Join(held[:min(len(held), 3)], ", "), nil
		case len(pods) > 0:
			return fmt.Sprintf("%d pods are ending", len(pods)), nil
		}
		return "", nil
	})
}

// leaving returns the pods that a drain of a node evicts. It refuses those that may not be evicted, before anything is
// changed.
func (r *Run) leaving(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, _, err := r.pods(ctx, node)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	if !r.Drain {
		return nil, fault.Errorf(fault.Refused, "power off the VM of", node,
			"evict them, --drain, or drain it (kubectl drain "+node+"), and uncordon it at the end",
			"%d pods run there, such as %s", len(pods), name(&pods[0]))
	}
	return pods, r.evictable(node, pods)
}

// evictTime bounds one request: the client retries by itself if a budget blocks a pod, and the other pods would wait
// for that.
const evictTime = 5 * time.Second

func (r *Run) evict(ctx context.Context, p *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	return r.API.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}})
}

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// pods returns the pods of a node that a drain evicts, and those that stay. Static pods stay, and those of DaemonSets,
// which run on cordoned nodes too. It omits ended pods.
func (r *Run) pods(ctx context.Context, node string) (evicted, stay []corev1.Pod, err error) {
	err = pages.Each(ctx, r.API, &corev1.PodList{}, func(p *corev1.Pod) {
		owner := metav1.GetControllerOf(p)
		_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case static || owner != nil && owner.Kind == "DaemonSet":
			stay = append(stay, *p)
		default:
			evicted = append(evicted, *p)
		}
	}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return nil, nil, clusterstate.Fault("read the pods of "+node, err)
	}
	return evicted, stay, nil
}

func (r *Run) volumes(ctx context.Context, pods []corev1.Pod) (map[string]bool, error) {
	claims, out := map[client.ObjectKey]bool{}, map[string]bool{}
	for i := range pods {
		for _, v := range pods[i].Spec.Volumes {
			key := client.ObjectKey{Namespace: pods[i].Namespace, Name: pods[i].Name + "-" + v.Name}
			if v.PersistentVolumeClaim != nil {
				key.Name = v.PersistentVolumeClaim.ClaimName
			} else if v.Ephemeral == nil {
				continue
			}
			claims[key] = true
		}
	}
	if err := pages.Each(ctx, r.API, &corev1.PersistentVolumeList{}, func(v *corev1.PersistentVolume) {
		of := v.Spec.ClaimRef
		out[v.Name] = of != nil && claims[client.ObjectKey{Namespace: of.Namespace, Name: of.Name}]
	}); err != nil {
		return nil, clusterstate.Fault("list PersistentVolumes", err)
	}
	return out, nil
}

// evictable refuses pods that would be lost, before the first eviction.
func (r *Run) evictable(node string, pods []corev1.Pod) error {
	var errs []error
	for i := range pods {
		p := &pods[i]
		why, flag := "", ""
		if metav1.GetControllerOf(p) == nil && !r.Force {
			why, flag = "nothing makes it again", "--force"
		}
		for _, v := range p.Spec.Volumes {
			if v.EmptyDir != nil && !r.EmptyDirs {
				why, flag = "it keeps data on the node (emptyDir "+v.Name+")", "--delete-emptydir-data"
			}
		}
		if why != "" && p.DeletionTimestamp == nil {
			errs = append(errs, &fault.Error{Reason: fault.Refused, Op: "evict", Subject: name(p) + " from " + node, Err: errors.New(why), Hint: "end it yourself, or accept that: " + flag})
		}
	}
	return fault.Join(errs...)
}
