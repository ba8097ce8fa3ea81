package model

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// openShift has the cluster serve what OpenShift is known by, its kinds of mirror sets, and what says which nodes have
// taken them up, until the test ends.
func (s *scenario) openShift() {
	const config, machines = "config.openshift.io", "machineconfiguration.openshift.io"
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{
		cluster.CRD(config, "v1", "ClusterVersion", "clusterversions"),
		cluster.CRD(config, "v1", "ImageDigestMirrorSet", "imagedigestmirrorsets"),
		cluster.CRD("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy", "imagecontentsourcepolicies"),
		cluster.CRD(machines, "v1", "MachineConfigPool", "machineconfigpools"),
	} {
		group, kind := crd.Spec.Group, crd.Spec.Names.Kind
		s.put(crd)
		s.t.Cleanup(func() { // the next scenario is not on OpenShift
			require.NoError(s.t, s.Delete(context.Background(), crd))
			require.Eventually(s.t, func() bool {
				kinds := cluster.Client(s.t, s.site.cfg).RESTMapper()
				_, err := kinds.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
				return meta.IsNoMatchError(err)
			}, patience, 5*poll)
		})
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/" + crd.Spec.Versions[0].Name)
		list.SetKind(kind + "List")
		require.Eventually(s.t, func() bool { return s.List(s.ctx, list) == nil }, patience, poll)
	}
}

const (
	cloudImage = "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere"
	ownSet     = "vdo-operator"
)

var mirrorSet = object("config.openshift.io", "ImageDigestMirrorSet", "", ownSet)

// leads is where the operator's set leads the cloud provider's images.
func (s *scenario) leads() []string {
	set := s.read(mirrorSet)
	require.NotNil(s.t, set)
	entries, _, _ := unstructured.NestedSlice(set.Object, "spec", "imageDigestMirrors")
	for _, e := range entries {
		if entry, _ := e.(map[string]any); entry["source"] == cloudImage {
			mirrors, _, _ := unstructured.NestedStringSlice(entry, "mirrors")
			return mirrors
		}
	}
	return nil
}

// Pods that name images as upstream does are not installed while no one leads the nodes to the mirror. Where the
// operator is asked to, and under the rights that are given for that alone, it writes a set before what pulls, repairs
// it, and removes it with the VDOConfig after all pods.
func TestOnOpenShiftNodesAreLedToTheMirror(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		s.openShift()
		b := s.driverBundle("drivers")
		b.Spec.ImageNames = v1alpha1.ImageNamesUpstream
		s.put(b)
		s.configure(func(spec *asked) { spec.StorageProvider = nil })
		s.op.drivers.Checks = finding{}
		s.pass(passBundle, passVCenter, passDrivers) // the finalizer is put on
		held := func() v1alpha1.PreflightResult {
			s.look()
			require.Equal(t, "BlockInstall", s.cond(v1alpha1.ConditionPreflight).Reason)
			r := s.v.Status.Preflight.Results[0]
			require.Equal(t, "image-mirror-set", r.ID)
			require.Equal(t, []string{cloudImage + " (no set has it)"}, r.Objects)
			require.Empty(t, s.workloads())
			return r
		}
		at := s.site.Host + "/" + repository
		require.Contains(t, held().Remedy, " "+at+" --runtime openshift | oc apply -f -")
		images, err := s.op.drivers.Images(t.Context(), s.v)
		require.NoError(t, err)
		require.NotNil(t, images.Mirrors, "as vdoctl check has it, which asks the vCenters itself")

		s.configure(func(spec *asked) {
			spec.OpenShift = &v1alpha1.OpenShift{MirrorSet: v1alpha1.MirrorSetWrite}
		})
		require.Contains(t, held().Remedy, "vdo-bundle install-manifests BUNDLE --mirror-set")
		s.denied[0].Forget()

		require.NoError(t, cluster.Operator.Grant(s.ctx, s.Client, deploy.MirrorSetRights)) // only where needed
		t.Cleanup(func() {
			require.NoError(t, cluster.Operator.Revoke(context.Background(), s.Client, deploy.MirrorSetRights))
		})
		var written []string
		s.meets(func(req *http.Request, name string) int {
			if isWrite(req) {
				written = append(written, name)
			}
			pods := !s.gone(&appsv1.DaemonSet{}, "kube-system", ccm)
			require.False(t, req.Method == http.MethodDelete && name == ownSet && pods, "there are pods still")
			return 0
		})
		s.until("the set is written", func() bool { return s.read(mirrorSet) != nil && len(s.workloads()) > 0 })
		require.Equal(t, []string{at + "/" + cloudImage}, s.leads())
		require.Less(t, slices.Index(written, ownSet), slices.Index(written, ccm), "%v", written)
		image := s.daemonSet("kube-system", ccm).Spec.Template.Spec.Containers[0].Image
		require.True(t, strings.HasPrefix(image, cloudImage+"@sha256:"), image)
		s.until("nothing is left to write", func() bool { return len(s.writes()) == 0 })

		s.drop(s.read(mirrorSet))
		s.drop(s.read(record))
		s.look()
		require.Equal(t, []string{at + "/" + cloudImage}, s.leads(), "it is repaired")
		s.look()
		s.deleted()
		require.Nil(t, s.read(mirrorSet))
	})
}
