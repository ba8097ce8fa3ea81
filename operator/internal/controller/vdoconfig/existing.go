package vdoconfig

import (
	"cmp"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// collectExisting reads what the drivers are configured with now: the cloud provider must not
// lose sight of nodes, and what an installation that is adopted had set by hand is named.
func (p *pass) collectExisting(ctx context.Context, storage map[string][]byte) error {
	c, memory := &p.cluster, p.facts.inventory.Memory()
	c.Searched, c.KeepsNodes = memory.Searched, memory.KeepsNodes
	used := slices.Concat(render.CloudVCenters(p.spec.Cloud()), render.CloudVCenters(memory.CloudProvider))
	c.AnotherVCenter = slices.ContainsFunc(used, func(name string) bool { return p.vcenters[name].another })
	if wants := p.spec.Cloud() != nil; wants || memory.CloudProvider != nil {
		if err := p.at(matrix.CPI, p.collectCloud(ctx)); err != nil {
			return err
		}
		// A pass that was about to make it again and was killed has written the records first.
		c.UnsureOfNodes = c.UnsureOfNodes || memory.KeepsNodes && len(c.CloudConfig) == 0
	}
	if p.spec.StorageProvider == nil || memory.StorageProvider != nil {
		return nil
	}
	states, err := p.Cluster.ConfigMap(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.FeatureStates})
	c.ExistingStorageConfig, c.ExistingFeatureStates = storage[render.CSIConfigKey], states
	return p.at(matrix.CSI, err)
}

// unsureOfNodes tells whether with the records of what was installed that is gone which tells of a cloud provider of
// ours: its configuration, so where it looked for nodes, or its DaemonSet, so whether it was to keep them.
func (s *facts) unsureOfNodes(config []byte) bool {
	missing := s.inventory.Len() == 0 && len(s.inventory.Memory().Revisions.Records()) == 0 && s.config.Status.Bundle != ""
	return missing && (len(config) == 0 || !slices.ContainsFunc(s.observed.DaemonSets, isCloud))
}

func isCloud(ds appsv1.DaemonSet) bool {
	return ds.Namespace == drivers.SystemNamespace && ds.Name == drivers.CloudControllerManager
}

// keepsNodes tells whether the cloud provider that is there was told to delete no Node objects: it
// asks whether the variable is there, whatever it says (pkg/cloudprovider/vsphere/instances.go of
// cloud-provider-vsphere).
func keepsNodes(o *assess.Observed) bool {
	return slices.ContainsFunc(o.DaemonSets, func(ds appsv1.DaemonSet) bool {
		return isCloud(ds) &&
			slices.ContainsFunc(ds.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == render.SkipNodeDeletion })
			})
	})
}

// searchedNow notes what the cloud provider is told of where to look, and of deleting Nodes. While
// it is requested and left as it is, what is known of it stays, and that it is not known any more.
func (s *facts) searchedNow(now *inventory.Memory, r rendering, installed bool) {
	switch {
	case r.Rendered != nil && r.Cloud != nil:
		if now.KeepsNodes, now.Searched = r.Cloud.KeepsNodes, r.Cloud.Searched; now.Searched == nil {
			now.Searched = s.cluster.Searched
		}
	case !installed && !slices.Contains(s.requested(), matrix.CPI):
		now.Searched, now.KeepsNodes = nil, false
	default:
		now.KeepsNodes = s.cluster.KeepsNodes || s.cluster.UnsureOfNodes
	}
}

// onVSphere leaves out the nodes that are not on vSphere: nothing is asked of them.
func (s *facts) onVSphere(nodes []*corev1.Node) []*corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		return drivers.Excluded(n.Labels, s.spec.ExcludedNodes)
	})
}

// collectCloud reads what the cloud provider is configured with: what its DaemonSet mounts, which
// with upstream's deprecated manifests is another ConfigMap than ours. Where it looked for nodes is
// remembered from now on, whatever becomes of that DaemonSet and its ConfigMap.
func (p *pass) collectCloud(ctx context.Context) error {
	c, memory := &p.cluster, p.facts.inventory.Memory()
	unremembered := memory.CloudProvider == nil
	location, named := cloudConfigLocation(p.observed)
	config, err := p.configAt(ctx, location)
	if err != nil {
		return err
	}
	c.CloudConfig = config
	if !unremembered && location == ownCloudConfig {
		return nil
	}
	c.ExistingCloudConfig = config
	c.KeepsNodes = c.KeepsNodes || keepsNodes(p.observed) // no one remembers it
	if c.Searched == nil && len(config) > 0 {
		c.Searched = render.Places(config)
	}
	if !unremembered {
		return nil
	}
	c.UnsureOfNodes = p.unsureOfNodes(config)
	if named && !render.NamesVCenters(config) {
		c.UnsureOfNodes = true
		p.notes = append(p.notes, "the cloud provider that is taken over is configured by what cannot be read or "+
			"names no vCenter: where it looks for nodes and what was set by hand is not known")
	}
	return nil
}

var ownCloudConfig = v1alpha1.KeyReference{ConfigMap: render.CPIConfigMap, Key: render.CPIConfigKey}

// cloudConfigLocation is the place of the file that the cloud provider's DaemonSet names. It is ours
// where that names none, or is not there: one without a configuration knows of no vCenter.
func cloudConfigLocation(o *assess.Observed) (location v1alpha1.KeyReference, named bool) {
	i := slices.IndexFunc(o.DaemonSets, isCloud)
	if i < 0 {
		return ownCloudConfig, false
	}
	pod := &o.DaemonSets[i].Spec.Template.Spec
	for _, c := range pod.Containers {
		words := slices.Concat(c.Command, c.Args)
		for i, arg := range words {
			file, named := strings.CutPrefix(arg, "--cloud-config=")
			if arg == "--cloud-config" && i+1 < len(words) {
				file, named = words[i+1], true
			}
			if named {
				location, _ := source.Mounted(file, pod, &c)
				return location, true
			}
		}
	}
	return ownCloudConfig, false
}

// configAt reads a configuration; it is empty where there is none.
func (p *pass) configAt(ctx context.Context, at v1alpha1.KeyReference) ([]byte, error) {
	name := types.NamespacedName{Namespace: render.CPINamespace, Name: cmp.Or(at.ConfigMap, at.Secret)}
	switch {
	case at.ConfigMap != "":
		data, err := p.Cluster.ConfigMap(ctx, name)
		return []byte(data[at.Key]), err
	case at.Secret != "":
		data, err := p.Cluster.Secret(ctx, name)
		return data[at.Key], err
	}
	return nil, nil
}
