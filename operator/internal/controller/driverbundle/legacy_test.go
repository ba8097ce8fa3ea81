package driverbundle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
)

func (w *world) matrixMap(name string, data map[string]string) *corev1.ConfigMap {
	w.t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: w.named(name), Data: data}
	w.create(c)
	return c
}

// legacy returns the DriverBundle of the matrix ConfigMap, or nil.
func (w *world) legacy() *v1alpha1.DriverBundle {
	w.t.Helper()
	var b v1alpha1.DriverBundle
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.LegacyMatrixName}, &b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return &b
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, 30*time.Second, 20*time.Millisecond, what)
}

func (w *world) told(name string) string {
	w.t.Helper()
	var c corev1.ConfigMap
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &c))
	return c.Annotations["vdo.vmware.com/message"]
}

func (w *world) edit(name string, data map[string]string) {
	w.t.Helper()
	var c corev1.ConfigMap
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &c))
	patch := client.MergeFrom(c.DeepCopy())
	c.Data = data
	require.NoError(w.t, w.Patch(w.t.Context(), &c, patch))
}

func TestThePredecessorsMatrixConfigMapMakesADriverBundle(t *testing.T) {
	for _, name := range []string{"comp-matrix-config", "compat-matrix-config"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			root := w.publish(mirror.Bundle{Seed: 1}, w.key)
			url := "oci://" + w.repo.Reference("1")
			c := w.matrixMap(name, map[string]string{"versionConfigURL": url, "auto-upgrade": "disabled"})
			w.eventually("accepted", func() bool { b := w.legacy(); return b != nil && b.Status.Digest == root.String() })
			b := w.legacy()
			require.Equal(t, w.repo.Reference("1"), b.Spec.Reference)
			require.Equal(t, "Manual", b.Annotations[v1alpha1.AnnotationUpgrade])
			require.Equal(t, c.UID, b.OwnerReferences[0].UID)

			patch := client.MergeFrom(b.DeepCopy())
			b.Spec.Interval.Duration = time.Hour // the user's own
			require.NoError(t, w.Patch(t.Context(), b, patch))
			w.repo.Retag(t, "2", root)
			w.edit(name, map[string]string{"versionConfigURL": "oci://" + w.repo.Reference("2"), "auto-upgrade": "enabled"})
			w.eventually("changed", func() bool {
				b := w.legacy()
				return b.Spec.Reference == w.repo.Reference("2") && b.Annotations[v1alpha1.AnnotationUpgrade] == "Automatic"
			})
			require.Equal(t, time.Hour, w.legacy().Spec.Interval.Duration)

			b = w.legacy()
			patch = client.MergeFrom(b.DeepCopy())
			b.Spec.Reference = w.repo.Reference("drifted")
			require.NoError(t, w.Patch(t.Context(), b, patch))
			w.eventually("put right", func() bool { return w.legacy().Spec.Reference == w.repo.Reference("2") })

			require.NoError(t, w.Delete(t.Context(), c))
			w.eventually("removed", func() bool { return w.legacy() == nil })
		})
	}
}

// accept consents to another repository.
func (w *world) accept(repository string) {
	w.t.Helper()
	b := w.legacy()
	patch := client.MergeFrom(b.DeepCopy())
	metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.AnnotationAcceptRepository, repository)
	require.NoError(w.t, w.Patch(w.t.Context(), b, patch))
}

func TestAMatrixConfigMapChangesToAnotherRepositoryByConsentOnly(t *testing.T) {
	w := newWorld(t)
	w.matrixMap("comp-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"})
	w.eventually("made", func() bool { return w.legacy() != nil })
	w.edit("comp-matrix-config", map[string]string{"versionConfigURL": "oci://other.site/vdo:1"})
	w.eventually("told", func() bool {
		b := w.legacy()
		return condition(b, v1alpha1.ConditionReady) == "False Refused" && w.told("comp-matrix-config") != ""
	})
	b := w.legacy()
	require.Equal(t, "mirror.site/vdo:1", b.Spec.Reference)
	command := "kubectl annotate driverbundle -n " + w.ns +
		" compat-matrix-config vdo.vmware.com/accept-repository=other.site/vdo --overwrite"
	require.Contains(t, message(b, v1alpha1.ConditionReady), command)
	require.Contains(t, w.told("comp-matrix-config"), command)
	w.accept("other.site/vdo")
	w.eventually("followed", func() bool {
		b := w.legacy()
		return b.Spec.Reference == "other.site/vdo:1" && w.told("comp-matrix-config") == "" &&
			condition(b, v1alpha1.ConditionReady) != "False Refused"
	})
}

func TestAMatrixConfigMapThatCannotBeHonouredSaysWhatToDo(t *testing.T) {
	w, good := newWorld(t), map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"}
	w.matrixMap("comp-matrix-config", good)
	w.eventually("made", func() bool { return w.legacy() != nil })
	for name, c := range map[string]struct {
		data map[string]string
		want []string
	}{
		"https":     {map[string]string{"versionConfigURL": "https://github.com/matrix.json"}, []string{`"https://github.com/matrix.json" is no oci:// reference`, "vdo-bundle matrix import"}},
		"content":   {map[string]string{"versionConfigContent": `{"CSI":{}}`}, []string{"versionConfigContent", "vdo-bundle pull --matrix"}},
		"nothing":   {nil, []string{"it is not there"}},
		"bad":       {map[string]string{"versionConfigURL": "oci://UPPER/case:1"}, []string{"versionConfigURL", "HOST/PATH:TAG"}},
		"bad value": {map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1", "auto-upgrade": "perhaps"}, []string{`"perhaps" is neither`}},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.edit("comp-matrix-config", c.data)
			w.eventually("told", func() bool { return w.told("comp-matrix-config") != "" })
			for _, text := range c.want {
				require.Contains(t, w.told("comp-matrix-config"), text)
			}
			require.Equal(t, "mirror.site/vdo:1", w.legacy().Spec.Reference, "what was accepted goes on serving")
			w.edit("comp-matrix-config", good)
			w.eventually("mended", func() bool { return w.told("comp-matrix-config") == "" })
		})
	}
	w.eventually("event", func() bool {
		var events eventsv1.EventList
		require.NoError(t, w.List(t.Context(), &events, client.InNamespace(w.ns)))
		return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "ConfigMap" && e.Type == corev1.EventTypeWarning && e.Reason == "InvalidInput"
		})
	})
}

func TestOfTwoMatrixConfigMapsOneCounts(t *testing.T) {
	w := newWorld(t)
	w.matrixMap("compat-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"})
	w.eventually("made", func() bool { return w.legacy() != nil })
	w.matrixMap("comp-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:2"})
	w.eventually("told", func() bool { return w.told("comp-matrix-config") != "" })
	require.Equal(t, "mirror.site/vdo:1", w.legacy().Spec.Reference)
}

func TestADriverBundleOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.create(&v1alpha1.DriverBundle{ObjectMeta: w.named(v1alpha1.LegacyMatrixName), Spec: v1alpha1.DriverBundleSpec{Reference: "mirror.site/mine:1"}})
	c := w.matrixMap("compat-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"})
	w.eventually("told", func() bool { return w.told("compat-matrix-config") != "" })
	require.Contains(t, w.told("compat-matrix-config"), "does not belong to this ConfigMap")
	require.NoError(t, w.Delete(t.Context(), c))
	require.Equal(t, "mirror.site/mine:1", w.legacy().Spec.Reference)
}

// Where each VDOConfig names the DriverBundle that it means, another one is in nobody's way.
func TestASecondDriverBundleIsMadeWhereEachVDOConfigNamesOne(t *testing.T) {
	w := newWorld(t)
	w.create(&v1alpha1.DriverBundle{ObjectMeta: w.named("site"), Spec: v1alpha1.DriverBundleSpec{Reference: "mirror.site/mine:1"}})
	config := &v1alpha1.VDOConfig{ObjectMeta: w.named("vdo"), Spec: v1alpha1.VDOConfigSpec{CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}}}
	w.create(config)
	w.matrixMap("comp-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"})
	w.eventually("told", func() bool {
		return strings.Contains(w.told("comp-matrix-config"), "DriverBundle site is there already")
	})
	require.Nil(t, w.legacy())
	config.Spec.Bundle = &v1alpha1.LocalReference{Name: "site"}
	require.NoError(t, w.Update(t.Context(), config))
	w.eventually("made", func() bool { return w.legacy() != nil && w.told("comp-matrix-config") == "" })
}

// The last version of the predecessor had a kind in the ConfigMap's place.
func TestThePredecessorsCompatibilityConfigMakesADriverBundle(t *testing.T) {
	w := newWorld(t)
	root := w.publish(mirror.Bundle{Seed: 1}, w.key)
	c := &v1alpha1.CompatibilityConfig{ObjectMeta: w.named("compat"), Spec: v1alpha1.CompatibilityConfigSpec{MatrixURL: "https://raw.example/matrix.yaml"}}
	w.create(c)
	message := func() string {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(c), c))
		return c.Annotations["vdo.vmware.com/message"]
	}
	w.eventually("told", func() bool { return message() != "" })
	require.Contains(t, message(), `spec.matrixURL`)
	require.Contains(t, message(), `"https://raw.example/matrix.yaml" is no oci:// reference`)
	require.Contains(t, message(), "spec.reference: HOST/PATH:TAG of a DriverBundle")
	require.Nil(t, w.legacy())

	patch := client.MergeFrom(c.DeepCopy())
	c.Spec.MatrixURL = "oci://" + w.repo.Reference("1")
	require.NoError(t, w.Patch(t.Context(), c, patch))
	w.eventually("accepted", func() bool { b := w.legacy(); return b != nil && b.Status.Digest == root.String() })
	w.eventually("nothing is wrong any more", func() bool { return message() == "" })
	require.Equal(t, c.UID, w.legacy().OwnerReferences[0].UID)
	require.Empty(t, w.legacy().Annotations[v1alpha1.AnnotationUpgrade])

	m := w.matrixMap("compat-matrix-config", map[string]string{"versionConfigURL": "oci://mirror.site/vdo:1"})
	w.accept("mirror.site/vdo")
	w.eventually("the ConfigMap comes first", func() bool { return w.legacy().Spec.Reference == "mirror.site/vdo:1" })
	w.eventually("told of the other", func() bool { return message() != "" })
	require.Contains(t, message(), "ConfigMap compat-matrix-config is there too")
	w.accept(w.reg.Host + "/vdo/drivers")
	require.NoError(t, w.Delete(t.Context(), m))
	w.eventually("back", func() bool { b := w.legacy(); return b != nil && b.Spec.Reference == w.repo.Reference("1") })

	require.NoError(t, w.Delete(t.Context(), c))
	w.eventually("removed", func() bool { return w.legacy() == nil })
}
