package sipcluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// deployments are those in the namespace of SIPClusters.
func (w *world) deployments() []appsv1.Deployment {
	w.Helper()
	var all appsv1.DeploymentList
	require.NoError(w, w.List(w.Context(), &all, client.InNamespace(w.ns)))
	return all.Items
}

// rollOut has Deployments roll out, and leaves what somebody's finalizer holds.
func (w *world) rollOut() {
	w.Helper()
	for _, d := range w.deployments() {
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		require.NoError(w, client.IgnoreNotFound(w.Status().Update(w.Context(), &d)))
	}
}

// hold puts a finalizer of somebody else on a Deployment.
func (w *world) hold(name string) {
	w.Helper()
	d := read[appsv1.Deployment](w, name)
	d.Finalizers = append(d.Finalizers, "example.org/slow")
	require.NoError(w, w.Update(w.Context(), d))
}

// A SIPCluster that is lost is made again, empty, and deleted, as the runbook says. Whatever became
// of its record and of the services, hosts are given back when nothing is left that leads there,
// and nothing of it is left then.
func TestHostsAreGivenBackAfterServicesThatNoRecordNames(t *testing.T) {
	balancer := services.Name("t", services.LoadBalancerWorker, 0)
	for name, before := range map[string]func(*world){
		"the record is lost": func(w *world) { w.dropRecord("t") },
		"the record is lost, and the labels are on another name": func(w *world) {
			w.dropRecord("t")
			d := read[appsv1.Deployment](w, balancer)
			require.NoError(w, w.Delete(w.Context(), d))
			require.NoError(w, w.Create(w.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "sip-other", Labels: d.Labels}, Spec: d.Spec}))
		},
		"the record is lost, and removal had begun": func(w *world) {
			w.dropRecord("t")
			require.NoError(w, w.Delete(w.Context(), read[appsv1.Deployment](w, balancer)))
			require.NoError(w, w.Delete(w.Context(), read[corev1.Service](w, balancer)))
		},
		"the record and the services were restored": func(w *world) { w.anew(&appsv1.Deployment{}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			_, r := w.served()
			w.lose("t")
			w.adopt("a", "b")
			before(w)
			s := w.sip("t", `{}`)
			require.NoError(t, w.pass(r, "t"))
			require.NoError(t, w.Delete(t.Context(), s))
			w.goesBeforeHosts(r)
		})
	}
}

// goesBeforeHosts makes passes until the SIPCluster is gone, and looks that its hosts stay while there
// are Deployments.
func (w *world) goesBeforeHosts(r *Reconciler) {
	w.Helper()
	for n := 0; w.find("t") != nil; n++ {
		require.Less(w, n, 40)
		was := w.deployments()
		require.NoError(w, w.pass(r, "t"))
		if len(was) > 0 {
			require.Equal(w, []string{"a", "b"}, names(w.claimed("t")))
		}
		w.play()
	}
	w.gone("t")
	require.Empty(w, told(r, "LeftBehind"))
}

// A Deployment that somebody made anew, as kubectl replace --force does, is not the one of the
// record: by its labels it goes, and hosts wait for it.
func TestHostsAreGivenBackAfterADeploymentThatWasMadeAnew(t *testing.T) {
	w := start(t)
	s, r := w.served()
	w.anew(&appsv1.Deployment{})
	require.NoError(t, w.Delete(t.Context(), s))
	w.goesBeforeHosts(r)
}

// anew makes an object of the load balancer anew, with the labels that it had.
func (w *world) anew(o client.Object) {
	w.Helper()
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}, o))
	require.NoError(w, w.Delete(w.Context(), o))
	o.SetResourceVersion("")
	o.SetUID("")
	require.NoError(w, w.Create(w.Context(), o))
}

// Where the operator may no longer read what services are made of, it does not take them for gone.
func TestHostsAreKeptWhereServicesCannotBeRead(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", balanced)
	w.settle(w.whole(), "t")
	w.lose("t")
	w.adopt("a", "b")
	w.dropRecord("t")
	s := w.sip("t", `{}`)
	blind := w.counting(interceptor.NewClient(w.own, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch kind := o.GetObjectKind().GroupVersionKind(); kind.Kind {
			case "Deployment", "Service", "ConfigMap", "Secret", "PodDisruptionBudget", "NetworkPolicy":
				if key.Namespace == w.ns {
					return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name, nil)
				}
			}
			return c.Get(ctx, key, o, opts...)
		},
	}))
	r := w.operator(blind)
	require.NoError(t, w.pass(r, "t"))
	require.NoError(t, w.Delete(t.Context(), s))
	for range 3 {
		require.NoError(t, w.pass(r, "t"))
	}
	w.says("t", airship.ReasonUnableToDecommission, "remove Deployment "+w.ns+"/"+services.Name("t", services.LoadBalancerWorker, 0), false)
	require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
	w.settle(w.whole(), "t")
	w.gone("t")
}

// A service that was taken out of the spec, and is not gone yet, keeps the hosts that leave,
// though no record, spec or status names it any more.
func TestAServiceOnItsWayOutKeepsHostsWithoutTheRecord(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", replace(balancedTwice, "SECOND", "oam"))
	r := w.whole()
	w.settle(r, "t")
	second := services.Name("t", services.LoadBalancerWorker, 1)
	w.hold(second)
	w.change("t", replace(balanced, "active: 2", "active: 1"))
	passes := func() {
		t.Helper()
		for range 6 {
			require.NoError(t, w.pass(r, "t"))
			w.rollOut()
			require.NotNil(t, read[appsv1.Deployment](w, second).DeletionTimestamp)
			require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
		}
		require.Contains(t, w.ready("t").Message, "removing "+second)
	}
	require.NoError(t, w.pass(r, "t"))
	passes()
	w.dropRecord("t")
	passes()
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")))
	require.NotContains(t, w.objects(), second)
	require.Empty(t, told(r, "LeftBehind"))
}

// What carries the SIPCluster's labels keeps its hosts for no longer than it is there, and who
// deletes the SIPCluster is told what they wait for.
func TestWhatKeepsHostsIsNamed(t *testing.T) {
	w := start(t)
	s, r := w.served()
	balancer := services.Name("t", services.LoadBalancerWorker, 0)
	w.hold(balancer)
	w.dropRecord("t")
	require.NoError(t, w.Delete(t.Context(), s))
	for range 3 {
		require.NoError(t, w.pass(r, "t"))
		require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
	}
	require.Regexp(t, `^removing services: \d objects are left: `, w.ready("t").Message)
	require.Contains(t, w.ready("t").Message, "Deployment "+w.ns+"/"+balancer)
	w.settle(r, "t")
	w.gone("t")
}

// One object is not "1 objects".
func TestWhatIsLeftIsSaidInPlainWords(t *testing.T) {
	service := inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Service", Namespace: "ns", Name: "x"}, Version: "v1"}}
	p := &pass{records: records{inventory: inventory.Of(service)}}
	require.Equal(t, "removing services: 1 object is left: Service ns/x", p.left())
}
