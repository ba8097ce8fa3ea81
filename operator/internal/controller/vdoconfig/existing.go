package vdoconfig

import (
	"context"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// collectExisting reads the drivers' live configuration: the cloud provider must not lose nodes, and the status names
// the manual settings of an adopted installation.
func (p *pass) collectExisting(ctx context.Context, storage map[string][]byte) error {
	c, memory := &p.cluster, p.facts.inventory.Memory()
	c.Searched, c.KeepsNodes, c.Servers = memory.Searched, memory.KeepsNodes, memory.Servers
	used := slices.Concat(render.CloudVCenters(p.spec.Cloud()), render.CloudVCenters(memory.CloudProvider))
	c.AnotherVCenter = slices.ContainsFunc(used, p.unproven)
	if wants := p.spec.Cloud() != nil; wants || memory.CloudProvider != nil {
		if err := p.at(matrix.CPI, p.collectCloud(ctx)); err != nil {
			return err
		}
		// A pass that was killed while it recreated the object has written the records first.
		c.UnsureOfNodes = c.UnsureOfNodes || memory.KeepsNodes && len(c.CloudConfig) == 0
	}
	if p.spec.StorageProvider == nil || memory.StorageProvider != nil {
		return nil
	}
	states, err := p.Cluster.Data(ctx, render.CSINamespace, v1alpha1.KeyReference{ConfigMap: render.FeatureStates})
	c.ExistingStorageConfig, c.ExistingFeatureStates = storage[render.CSIConfigKey], states.Values
	return p.at(matrix.CSI, err)
}

// unsureOfNodes reports whether, with the records, also the configuration or the DaemonSet of the operator's cloud
// provider is gone. They say where it looked for nodes, and whether it was to keep them.
func (s *facts) unsureOfNodes(config []byte) bool {
	missing := s.inventory.Len() == 0 && len(s.inventory.Memory().Revisions.Records()) == 0 && s.config.Status.Bundle != ""
	return missing && (len(config) == 0 || !slices.ContainsFunc(s.observed.DaemonSets, isCloud))
}

func isCloud(ds appsv1.DaemonSet) bool {
	return ds.Namespace == drivers.SystemNamespace && ds.Name == drivers.CloudControllerManager
}

// keepsNodes reports whether the running cloud provider never deletes Node objects. It only tests that the variable
// exists, with any value (pkg/cloudprovider/vsphere/instances.go of cloud-provider-vsphere).
func keepsNodes(o *assess.Observed) bool {
	return slices.ContainsFunc(o.DaemonSets, func(ds appsv1.DaemonSet) bool {
		return isCloud(ds) &&
			slices.ContainsFunc(ds.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == render.SkipNodeDeletion })
			})
	})
}

// searchedNow records where the rendered cloud provider looks for nodes, and whether it deletes Nodes. While the driver
// is requested and stays unchanged, the earlier record stays, even if it says unknown.
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

// serversNow records which vCenter answers at which address, so that one that moves loses no nodes.
func (s *facts) serversNow(was map[string]string) map[string]string {
	now := maps.Clone(was)
	for _, vc := range s.vcenters {
		if vc.verified && vc.InstanceUUID != "" && !vc.another {
			if now == nil {
				now = map[string]string{}
			}
			now[v1alpha1.CanonicalHost(vc.Server)] = vc.InstanceUUID
		}
	}
	return now
}

// onVSphere omits the nodes outside of vSphere: the checks ignore them.
func (s *facts) onVSphere(nodes []*corev1.Node) []*corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		return drivers.Excluded(n.Labels, s.spec.ExcludedNodes)
	})
}

// collectCloud reads the cloud provider's configuration from what its DaemonSet mounts: upstream's deprecated manifests
// use another ConfigMap. The record of where it looked for nodes outlives that DaemonSet and ConfigMap.
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
	c.KeepsNodes = c.KeepsNodes || keepsNodes(p.observed) // no record says so
	if c.Searched == nil && len(config) > 0 {
		c.Searched = render.Places(config)
	}
	if !unremembered {
		return nil
	}
	c.UnsureOfNodes = p.unsureOfNodes(config)
	if named && !render.NamesVCenters(config) {
		c.UnsureOfNodes = true
		p.notes = append(p.notes, "the configuration of the adopted cloud provider is unreadable or names no vCenter: "+
			"its places of nodes and its manual settings are unknown")
	}
	return nil
}

var ownCloudConfig = v1alpha1.KeyReference{ConfigMap: render.CPIConfigMap, Key: render.CPIConfigKey}

// cloudConfigLocation returns the place of the file that the cloud provider's DaemonSet names. It is the operator's if
// the DaemonSet names none or does not exist: without a configuration it knows no vCenter.
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

// configAt reads a configuration; it is empty if none exists.
func (p *pass) configAt(ctx context.Context, at v1alpha1.KeyReference) ([]byte, error) {
	if at == (v1alpha1.KeyReference{}) {
		return nil, nil
	}
	data, err := p.Cluster.Data(ctx, render.CPINamespace, at)
	return data.Values[at.Key], err
}
