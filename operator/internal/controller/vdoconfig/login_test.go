package vdoconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// The login that works stays until the mirror has let another one in, whatever becomes of its Secret.
func TestWhichLoginPodsHave(t *testing.T) {
	given := map[string][]byte{corev1.DockerConfigJsonKey: []byte("new")}
	ready := func(status metav1.ConditionStatus) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) {
			b.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: status, Reason: string(fault.Unauthorized), Message: "401"}}
		}
	}
	for name, c := range map[string]struct {
		given    map[string][]byte
		copied   bool // pods have a login
		verified string
		edit     func(*v1alpha1.DriverBundle)
		want     string
		kept     bool
		gated    fault.Reason
		waiting  bool
		notes    int
	}{
		"the mirror let it in":                {given: given, copied: true, verified: "2", want: "new"},
		"there is none, and none is needed":   {verified: v1alpha1.NoLogin},
		"it is being tried":                   {given: given, copied: true, verified: "1", want: "{}", kept: true, waiting: true},
		"it is being tried, and pods are new": {given: given, verified: "1", waiting: true},
		"the mirror refuses it": {given: given, copied: true, verified: "1", edit: ready(metav1.ConditionFalse),
			want: "{}", kept: true, gated: fault.Unauthorized},
		"nobody tries it": {given: given, copied: true, verified: "1",
			edit: func(b *v1alpha1.DriverBundle) { b.Spec.Suspend = true }, want: "{}", kept: true, gated: fault.NotFound},
		"it is gone":                       {copied: true, verified: "1", want: "{}", kept: true, gated: fault.NotFound},
		"it is gone, and none is needed":   {copied: true, verified: v1alpha1.NoLogin, want: "{}", kept: true, notes: 1},
		"it has no key":                    {given: map[string][]byte{"x": nil}, copied: true, verified: v1alpha1.NoLogin, want: "{}", kept: true, gated: fault.NotFound},
		"it is named, and was never there": {verified: v1alpha1.NoLogin, edit: func(b *v1alpha1.DriverBundle) { b.Spec.PullSecret = &v1alpha1.LocalReference{Name: "x"} }, gated: fault.NotFound},
	} {
		g := gathering(t)
		g.Cluster, g.facts.inventory = &fakeCluster{given: c.given}, inventory.Inventory{}
		for _, key := range copies {
			if c.copied {
				id := inventory.ID{Key: key, Version: "v1"}
				g.facts.inventory = g.facts.inventory.With(inventory.Entry{ID: id, Driver: matrix.CPI})
			}
		}
		if g.bundle.source.Status.VerifiedLogin = c.verified; c.edit != nil {
			c.edit(g.bundle.source)
		}
		require.NoError(t, g.collectLogin(t.Context()), name)
		require.Equal(t, c.want, string(g.login.data), name)
		require.Equal(t, c.kept, g.login.kept, name)
		require.Equal(t, c.gated != "", g.facts.gated != nil, name)
		if c.gated != "" {
			require.Equal(t, c.gated, fault.ReasonOf(g.facts.gated), name)
		}
		require.Equal(t, c.waiting, g.waiting != "", name)
		require.Len(t, g.notes, c.notes, name)
	}
}

// Copies that are there stay as they are; one that is not is made from what is known.
func TestCopiesOfALoginStay(t *testing.T) {
	live, stage := plan.Live{}, render.Stage{}
	for i, key := range copies {
		o := &unstructured.Unstructured{Object: map[string]any{"data": "old"}}
		o.SetAPIVersion("v1")
		o.SetKind(key.Kind)
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		stage.Objects = append(stage.Objects, render.Object{Unstructured: o})
		if i == 0 {
			live[key] = &unstructured.Unstructured{Object: map[string]any{"data": "theirs"}}
		}
	}
	r := &render.Rendered{Stages: []render.Stage{stage}}
	(&facts{bundled: bundled{login: login{kept: true}}, observed: &assess.Observed{}}).adapt(r, live, drift.Rules{})
	for i, want := range []string{"theirs", "old"} {
		require.Equal(t, want, r.Stages[0].Objects[i].Object["data"])
	}
}

// Pods keep the hash that they run with while nothing differs: under another key, and after the records were lost.
func TestPodsKeepTheirHash(t *testing.T) {
	of := func(kind, data, hash string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "data": data}}
		if hash != "" {
			require.NoError(t, unstructured.SetNestedField(o.Object, hash, configHash...))
		}
		return o
	}
	recorded := withCSI(t).inventory
	for name, c := range map[string]struct {
		facts facts
		data  string
		want  string
	}{
		"another key":         {facts{installation: installation{inventory: recorded, newHash: true}}, "same", "old"},
		"no records":          {facts{}, "same", "old"},
		"no records, changed": {facts{}, "other", "new"},
		"known":               {facts{installation: installation{inventory: recorded}}, "same", "new"},
	} {
		secret, pods := of("Secret", c.data, ""), of("Deployment", "", "new")
		was := []*unstructured.Unstructured{of("Secret", "same", ""), of("Deployment", "", "old")}
		stage := render.Stage{Objects: []render.Object{{Unstructured: secret}, {Unstructured: pods}}}
		r := &render.Rendered{Stages: []render.Stage{stage}}
		c.facts.keepHashes(r, plan.Live{plan.IDOf(secret).Key: was[0], plan.IDOf(pods).Key: was[1]})
		hash, _, _ := unstructured.NestedString(pods.Object, configHash...)
		require.Equal(t, c.want, hash, name)
	}
}

func TestDriversGetTheThumbprintInSHA1(t *testing.T) {
	long, short := strings.Repeat("AB:", 31)+"AB", strings.Repeat("CD:", 19)+"CD"
	for _, c := range []struct{ spec, status, want string }{
		{long, short, short}, {long, "", long}, {short, "", short}, {"", short, ""},
	} {
		vcc := &v1alpha1.VsphereCloudConfig{Spec: v1alpha1.VsphereCloudConfigSpec{Thumbprint: c.spec}}
		vcc.Status.Thumbprint = c.status
		require.Equal(t, c.want, vcenterOf(vcc, credentials.Verified{}).Thumbprint)
	}
}
