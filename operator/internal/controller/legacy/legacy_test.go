package legacy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/legacy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

const name = "compat-matrix-config"

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "vdo", Name: name, UID: types.UID(name + "-uid")}
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: meta(name), Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func compatibility(url string) *v1alpha1.CompatibilityConfig {
	return &v1alpha1.CompatibilityConfig{
		ObjectMeta: meta("compat"), Spec: v1alpha1.CompatibilityConfigSpec{MatrixURL: url},
	}
}

// created is a DriverBundle as it was made for a ConfigMap before.
func created(reference, owner string, annotations ...string) *v1alpha1.DriverBundle {
	b := &v1alpha1.DriverBundle{ObjectMeta: meta(name), Spec: v1alpha1.DriverBundleSpec{Reference: reference}}
	b.Spec.Interval.Duration = time.Hour // the user's own
	if owner != "" {
		b.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: "u", Controller: ptr.To(true),
		}}
	}
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, annotations[i], annotations[i+1])
	}
	return b
}

func vdoConfig(bundle string) *v1alpha1.VDOConfig {
	c := &v1alpha1.VDOConfig{ObjectMeta: meta("vdo")}
	if bundle != "" {
		c.Spec.Bundle = &v1alpha1.LocalReference{Name: bundle}
	}
	return c
}

func other() *v1alpha1.DriverBundle {
	return &v1alpha1.DriverBundle{
		ObjectMeta: meta("site"), Spec: v1alpha1.DriverBundleSpec{Reference: "mirror.site/mine:1"},
	}
}

type events []string

func (e *events) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*e = append(*e, about.(client.Object).GetName()+" "+kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

type objects = []client.Object

// reconciled is what becomes of objects, with the events.
func reconciled(t *testing.T, objects ...client.Object) (api client.Client, reported events) {
	api = fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).Build()
	r := &legacy.Reconciler{Reader: api, Client: api, Recorder: &reported}
	for range 2 { // the second one changes nothing
		one := types.NamespacedName{Namespace: "vdo", Name: name}
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: one})
		require.NoError(t, err)
	}
	return api, reported
}

func TestTheDriverBundleOfTheEarlierOperatorsResources(t *testing.T) {
	const (
		url, auto, content       = "versionConfigURL", "auto-upgrade", "versionConfigContent"
		one, two, otherNamespace = "oci://mirror.site/vdo:1", "oci://mirror.site/vdo:2", "oci://other.site/vdo:1"
		comp                     = "comp-matrix-config"
		accepted                 = "vdo.vmware.com/accept-repository"
		message                  = "vdo.vmware.com/message"
		approval                 = "kubectl annotate driverbundle -n vdo compat-matrix-config vdo.vmware.com/accept-repository=other.site/vdo --overwrite"
	)
	const kept = "mirror.site/vdo:1 compat-matrix-config "
	for title, c := range map[string]struct {
		objects  []client.Object
		want     string   // "REFERENCE OWNER UPGRADE" of the DriverBundle, "" for none
		reported string   // the resource with an annotation; "" for none
		says     []string // of it
	}{
		"automatic upgrades":              {objects: objects{configMap(name, url, one, auto, "Enabled")}, want: kept + "Automatic"},
		"manual upgrades":                 {objects: objects{configMap(name, url, one, auto, "disabled")}, want: kept + "Manual"},
		"a CompatibilityConfig":           {objects: objects{compatibility(one)}, want: "mirror.site/vdo:1 compat "},
		"another repository":              {objects: objects{configMap(name, url, otherNamespace), created("mirror.site/vdo:1", name)}, want: kept, reported: name, says: []string{approval}},
		"another one, accepted":           {objects: objects{configMap(name, url, otherNamespace), created("mirror.site/vdo:1", name, accepted, "other.site/vdo", message, "why", v1alpha1.AnnotationUpgrade, "Manual")}, want: "other.site/vdo:1 compat-matrix-config "},
		"it is gone":                      {objects: objects{created("mirror.site/vdo:1", name)}},
		"a matrix as JSON":                {objects: objects{configMap(name, content, `{"CSI":{}}`)}, reported: name, says: []string{content, "vdo-bundle pull --matrix"}},
		"nothing in it":                   {objects: objects{configMap(name)}, reported: name, says: []string{"it is not there"}},
		"no reference":                    {objects: objects{configMap(name, url, "oci://UPPER/case:1")}, reported: name, says: []string{url, "HOST/PATH:TAG"}},
		"a CompatibilityConfig's https":   {objects: objects{compatibility("https://raw.example/m")}, reported: "compat", says: []string{"spec.matrixURL", "spec.reference: HOST/PATH:TAG of a DriverBundle"}},
		"no such setting":                 {objects: objects{configMap(name, url, one, auto, "perhaps")}, reported: name, says: []string{`"perhaps" is neither`}},
		"two ConfigMaps":                  {objects: objects{configMap(comp, url, two), configMap(name, url, one)}, want: kept, reported: comp, says: []string{"ConfigMap compat-matrix-config is there too"}},
		"both kinds":                      {objects: objects{compatibility(two), configMap(comp, url, " "+one+" ")}, want: "mirror.site/vdo:1 comp-matrix-config ", reported: "compat", says: []string{"ConfigMap comp-matrix-config is there too"}},
		"somebody else's DriverBundle":    {objects: objects{configMap(name, url, one), created("mirror.site/mine:1", "")}, want: "mirror.site/mine:1  ", reported: name, says: []string{"does not belong to this ConfigMap"}},
		"somebody else's, and none":       {objects: objects{created("mirror.site/mine:1", "")}, want: "mirror.site/mine:1  "},
		"beside another DriverBundle":     {objects: objects{configMap(name, url, one), other(), vdoConfig("")}, reported: name, says: []string{"DriverBundle site is there already"}},
		"beside it without VDOConfigs":    {objects: objects{configMap(name, url, one), other()}, reported: name, says: []string{"DriverBundle site is there already"}},
		"beside one that VDOConfigs name": {objects: objects{configMap(name, url, one), other(), vdoConfig("site")}, want: kept},
	} {
		t.Run(title, func(t *testing.T) {
			api, reported := reconciled(t, c.objects...)
			var b v1alpha1.DriverBundle
			got := ""
			err := api.Get(t.Context(), client.ObjectKey{Namespace: "vdo", Name: name}, &b)
			if !apierrors.IsNotFound(err) {
				require.NoError(t, err)
				owner := ptr.Deref(metav1.GetControllerOf(&b), metav1.OwnerReference{}).Name
				got = b.Spec.Reference + " " + owner + " " + b.Annotations[v1alpha1.AnnotationUpgrade]
			}
			require.Equal(t, c.want, got)
			for _, o := range c.objects {
				if _, isBundle := o.(*v1alpha1.DriverBundle); isBundle {
					if o.GetName() == name && c.want != "" {
						require.Equal(t, time.Hour, b.Spec.Interval.Duration, "what else it says is the user's")
					}
					continue
				}
				require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
				says := o.GetAnnotations()[message]
				require.Equal(t, o.GetName() == c.reported, says != "", says)
				for _, text := range c.says {
					require.True(t, o.GetName() != c.reported || strings.Contains(says, text), says)
				}
			}
			require.Equal(t, c.reported != "", len(reported) == 1, "one event")
			if c.reported != "" {
				require.True(t, strings.HasPrefix(reported[0], c.reported+" Warning "), reported)
			}
			require.Equal(t, title == "another repository", strings.Contains(b.Annotations[message], approval))
		})
	}
}

// An annotation goes once it is true no longer, and an event tells so.
func TestWhatWasWrongIsTakenBack(t *testing.T) {
	c := configMap(name, "versionConfigURL", "oci://mirror.site/vdo:1")
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, "vdo.vmware.com/message", "what was wrong")
	api, reported := reconciled(t, c)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	require.Empty(t, c.Annotations)
	require.Equal(t, events{name + " Normal Succeeded: Configured DriverBundle compat-matrix-config from this ConfigMap"}, reported)
}
