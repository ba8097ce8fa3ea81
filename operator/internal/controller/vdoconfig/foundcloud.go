package vdoconfig

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// gatherCloud reads what the cloud provider is configured with: what its DaemonSet mounts, which
// with upstream's deprecated manifests is another ConfigMap than ours. Where it looked for nodes is
// remembered from now on, whatever becomes of that DaemonSet and its ConfigMap.
func (g *gatherer) gatherCloud(ctx context.Context) error {
	c, memory := &g.cluster, g.inventory.Memory()
	unremembered := memory.CloudProvider == nil
	place, named := placeOfCloudConfig(g.observed)
	config, err := g.configAt(ctx, place)
	if err == nil && len(config) == 0 && unremembered && g.noCloudYet() {
		place = configPlace{kind: kindConfigMap, name: drivers.CloudDeprecatedConfigMap, key: render.CPIConfigKey}
		config, err = g.configAt(ctx, place)
	}
	if err != nil {
		return err
	}
	c.CloudConfig = config
	if !unremembered && place == ownCloudConfig {
		return nil
	}
	c.FoundCloudConfig = config
	c.KeepsNodes = c.KeepsNodes || keepsNodes(g.observed) // nobody remembers it
	if c.Searched == nil && len(config) > 0 {
		c.Searched = render.Places(config)
	}
	if !unremembered {
		return nil
	}
	c.UnsureOfNodes = g.unsureOfNodes(config)
	if named && !render.NamesVCenters(config) {
		c.UnsureOfNodes = true
		g.notes = append(g.notes, fmt.Sprintf("the cloud provider that is taken over is configured by what cannot be read or names no vCenter (%s): where it looks for nodes and what was set by hand is not known", place))
	}
	return nil
}

// noCloudYet tells whether there is no cloud provider, nor was there one of ours: one of upstream's
// deprecated manifests may have been deleted by hand, so that it can be installed anew.
func (g *gatherer) noCloudYet() bool {
	return !slices.ContainsFunc(g.observed.DaemonSets, isCloud) && !g.hadCloudProvider()
}

const kindConfigMap, kindSecret = "ConfigMap", "Secret"

// configPlace is where the configuration of a cloud provider is: a key of a ConfigMap or Secret
// in its namespace, or where kind is "", neither.
type configPlace struct{ kind, name, key string }

var ownCloudConfig = configPlace{kindConfigMap, render.CPIConfigMap, render.CPIConfigKey}

func (p configPlace) String() string {
	if p.kind == "" {
		return "neither a ConfigMap nor a Secret"
	}
	return fmt.Sprintf("%s %s/%s, key %s", p.kind, render.CPINamespace, p.name, p.key)
}

// placeOfCloudConfig is the place of the file that the cloud provider's DaemonSet names. It is ours
// where that names none, or is not there: one without a configuration knows of no vCenter.
func placeOfCloudConfig(o *assess.Observed) (place configPlace, named bool) {
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
				return mountedAt(file, c.VolumeMounts, pod.Volumes), true
			}
		}
	}
	return ownCloudConfig, false
}

// mountedAt is the place of a file in a container.
func mountedAt(file string, mounts []corev1.VolumeMount, volumes []corev1.Volume) configPlace {
	dir, name := path.Split(file)
	for _, m := range mounts {
		i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || path.Clean(m.MountPath) != path.Clean(dir) {
			continue
		}
		switch v := volumes[i]; {
		case v.ConfigMap != nil:
			return configPlace{kindConfigMap, v.ConfigMap.Name, keyOf(v.ConfigMap.Items, name)}
		case v.Secret != nil:
			return configPlace{kindSecret, v.Secret.SecretName, keyOf(v.Secret.Items, name)}
		}
	}
	return configPlace{}
}

// keyOf is the key that is mounted as a file.
func keyOf(items []corev1.KeyToPath, file string) string {
	for _, item := range items {
		if item.Path == file {
			return item.Key
		}
	}
	return file
}

// configAt reads a configuration; it is empty where there is none.
func (g *gatherer) configAt(ctx context.Context, p configPlace) ([]byte, error) {
	name := types.NamespacedName{Namespace: render.CPINamespace, Name: p.name}
	switch p.kind {
	case kindConfigMap:
		data, err := g.Cluster.ConfigMap(ctx, name)
		return []byte(data[p.key]), err
	case kindSecret:
		data, err := g.Cluster.Secret(ctx, name)
		return data[p.key], err
	}
	return nil, nil
}
