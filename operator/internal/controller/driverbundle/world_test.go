package driverbundle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// site is a mirror that demands TLS and a login, a publisher's key, and the objects that an
// administrator makes of these in a namespace of an API server.
type site struct {
	client.Client
	t      *testing.T
	ns     string
	reg    *registry.Registry
	repo   *mirror.Repository
	key    *trust.Signer
	public string
}

func newSite(t *testing.T, c client.Client, ns string) *site {
	t.Helper()
	s := &site{Client: c, t: t, ns: ns}
	s.reg = registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	s.repo = mirror.New(t, s.reg, "vdo/drivers")
	s.key, s.public = mirror.NewKey(t)
	s.put(v1alpha1.DefaultCAName, "ca.crt", string(s.reg.CA()))
	s.put(v1alpha1.DefaultTrustName, "release.pub", s.public, "README", "x")
	s.create(&corev1.Secret{
		ObjectMeta: s.named(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: s.reg.DockerConfig()},
	})
	return s
}

func (s *site) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.Create(s.t.Context(), o))
}

func (s *site) read(o client.Object, name string) {
	s.t.Helper()
	require.NoError(s.t, s.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o))
}

// put makes a ConfigMap hold keys and values alone.
func (s *site) put(name string, keysAndValues ...string) {
	s.t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: s.named(name)}
	err := s.Get(s.t.Context(), client.ObjectKeyFromObject(c), c)
	c.Data = map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		c.Data[keysAndValues[i]] = keysAndValues[i+1]
	}
	if err != nil {
		s.create(c)
		return
	}
	require.NoError(s.t, s.Update(s.t.Context(), c))
}

// bundle creates a DriverBundle named drivers.
func (s *site) bundle() {
	s.t.Helper()
	b := &v1alpha1.DriverBundle{ObjectMeta: s.named("drivers")}
	b.UID = types.UID(fmt.Sprint("uid-", time.Now().UnixNano())) // an API server sets its own
	b.Spec.Reference, b.Spec.Interval.Duration = s.repo.Reference("1"), time.Hour
	s.create(b)
}

func (s *site) get() *v1alpha1.DriverBundle {
	s.t.Helper()
	b := &v1alpha1.DriverBundle{}
	s.read(b, "drivers")
	return b
}

// publish pushes a bundle under tag 1 and has it signed by keys.
func (s *site) publish(b mirror.Bundle, by ...*trust.Signer) image.Digest {
	s.t.Helper()
	root := s.repo.Push(s.t, "building", b)
	for _, k := range by {
		s.repo.Sign(s.t, root, k)
	}
	_, err := s.reg.Retag(s.repo.Path, root.String(), "1")
	require.NoError(s.t, err)
	return root
}

// at is a digest in the mirror.
func (s *site) at(d image.Digest) string { return s.reg.Host + "/vdo/drivers@" + d.String() }

// parts are those of copies, or of the copy of one digest.
func (s *site) parts(of ...image.Digest) []corev1.ConfigMap {
	s.t.Helper()
	opts := []client.ListOption{client.InNamespace(s.ns), client.HasLabels{"vdo.vmware.com/copy"}}
	for _, d := range of {
		opts = append(opts, client.MatchingLabels{"vdo.vmware.com/digest": d.Hex()[:63]})
	}
	var list corev1.ConfigMapList
	require.NoError(s.t, s.List(s.t.Context(), &list, opts...))
	return list.Items
}

// world is a site, and passes over its DriverBundle: one at each call of pass.
type world struct {
	*site
	now   time.Time // the zero value: the clock
	floor *trust.Policy
	limit time.Duration
	keeps []string // what revisions retain
	store *store.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	api := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithStatusSubresource(&v1alpha1.DriverBundle{}).Build()
	w := &world{site: newSite(t, api, "vdo")}
	w.restart()
	return w
}

// restart forgets what is in memory alone.
func (w *world) restart() {
	w.store = store.New(store.Options{Client: w.Client, Timeout: 5 * time.Second})
}

// pass makes a change, and a pass over the DriverBundle as it is then.
func (w *world) pass(change ...func(*v1alpha1.DriverBundle)) *v1alpha1.DriverBundle {
	w.t.Helper()
	b := w.get()
	for _, f := range change {
		f(b)
	}
	require.NoError(w.t, w.Update(w.t.Context(), b))
	r := &Reconciler{
		Reader: w.Client, Writer: condition.Writer{Client: w.Client, Recorder: &events.FakeRecorder{}},
		Options: Options{Store: w.store, Floor: w.floor, Timeout: w.limit, Now: func() time.Time {
			if w.now.IsZero() {
				return time.Now()
			}
			return w.now
		}, Retained: func(context.Context) ([]string, error) { return w.keeps, nil }},
	}
	_, err := reconcile.AsReconciler(w.Client, r).Reconcile(
		w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	require.NoError(w.t, err)
	return w.get()
}

// accepted publishes a good bundle, and accepts it.
func (w *world) accepted(b mirror.Bundle) image.Digest {
	w.t.Helper()
	root := w.publish(b, w.key)
	w.bundle()
	is := w.pass()
	require.Equal(w.t, "True Succeeded "+root.String(), status(is, v1alpha1.ConditionReady)+" "+is.Status.Digest)
	return root
}

func status(b *v1alpha1.DriverBundle, typ string) string {
	c := meta.FindStatusCondition(b.Status.Conditions, typ)
	if c == nil {
		return "-"
	}
	return string(c.Status) + " " + c.Reason
}

func message(b *v1alpha1.DriverBundle, typ string) string {
	if c := meta.FindStatusCondition(b.Status.Conditions, typ); c != nil {
		return c.Message
	}
	return ""
}

// requireIs requires Ready and Verified, the digest, and texts of Ready's message.
func requireIs(t *testing.T, b *v1alpha1.DriverBundle, ready, verified string, digest image.Digest, texts ...string) {
	t.Helper()
	says := message(b, v1alpha1.ConditionReady)
	require.Equal(t, []string{ready, verified, digest.String()}, []string{
		status(b, v1alpha1.ConditionReady), status(b, v1alpha1.ConditionVerified), b.Status.Digest,
	}, says)
	for _, text := range texts {
		require.Contains(t, says, text)
	}
}
