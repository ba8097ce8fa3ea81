package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func leftoversOf(s *site, d decision) map[string]matrix.Driver {
	all := map[string]matrix.Driver{}
	for _, l := range s.leftovers(rendering{spec: s.spec, decision: d}) {
		all[l.Key.String()] = l.Driver
	}
	return all
}

func decided(driver matrix.Driver, version string) decision {
	return decision{releases: []matrix.ReleaseID{{Driver: driver, Version: mustVersion(version)}}}
}

func TestTheSnapshotWebhookGoesFromCSI34On(t *testing.T) {
	require.Empty(t, leftoversOf(&site{}, decided(matrix.CSI, "3.3.1")))
	for _, version := range []string{"3.4.0", "3.5.1", "3.10.0"} {
		all := leftoversOf(&site{}, decided(matrix.CSI, version))
		require.Len(t, all, 6, version)
		require.Contains(t, all, "ValidatingWebhookConfiguration validation-webhook.snapshot.storage.k8s.io")
		require.Contains(t, all, "Deployment kube-system/snapshot-validation-deployment")
		require.Contains(t, all, "Secret kube-system/snapshot-webhook-certs")
	}
}

// A webhook for snapshots that a site runs for itself elsewhere stays.
func TestTheSnapshotWebhookOfAnotherNamespaceStays(t *testing.T) {
	of := func(namespace string) []*unstructured.Unstructured {
		in := map[string]any{"namespace": namespace}
		hook := map[string]any{"clientConfig": map[string]any{"service": in}}
		return []*unstructured.Unstructured{
			{Object: map[string]any{"metadata": in}}, {Object: map[string]any{"subjects": []any{in}}},
			{Object: map[string]any{"webhooks": []any{hook}}},
		}
	}
	for namespace, goes := range map[string]bool{"kube-system": true, "default": false, "": false} {
		for _, o := range of(namespace) {
			require.Equal(t, goes, inKubeSystem(o), "%s: %v", namespace, o)
		}
	}
}

// The earlier operator's Secret goes only where nothing is in it that we have not.
func TestTheEarlierOperatorsCredentialsGoOnlyAsACopy(t *testing.T) {
	cpi := decided(matrix.CPI, "1.33.1")
	one := render.VCenter{Server: "vc1.site", Credentials: render.Credentials{Username: "u", Password: "p"}}
	s := &site{vcenters: map[string]vcenter{"one": {VCenter: one, proven: true}}}
	s.spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"one"}}
	proven, _ := s.proven(&s.spec)
	for name, c := range map[string]struct {
		data map[string]any
		same bool
	}{
		"copy":                {map[string]any{"vc1.site.username": "dQ==", "vc1.site.password": "cA=="}, true},
		"with a line break":   {map[string]any{"vc1.site.username": "dQ==", "vc1.site.password": "cAo="}, true},
		"another password":    {map[string]any{"vc1.site.password": "eA=="}, false},
		"another vCenter too": {map[string]any{"vc1.site.password": "cA==", "vc2.site.password": "cA=="}, false},
		"no base64":           {map[string]any{"vc1.site.password": "%"}, false},
	} {
		require.Equal(t, c.same, copyOfCredentials(&unstructured.Unstructured{Object: map[string]any{"data": c.data}}, proven), name)
	}
	require.Contains(t, leftoversOf(s, cpi), "Secret kube-system/cpi-global-secret")
	s.vcenters["one"] = vcenter{VCenter: one}
	require.NotContains(t, leftoversOf(s, cpi), "Secret kube-system/cpi-global-secret", "not while its replacement is in doubt")
}
