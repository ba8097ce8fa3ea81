package deploy

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"
)

// podSecurity are the labels that control which pods a namespace admits to the node's network.
var podSecurity = []string{"pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/warn"}

// OnHostNetwork returns a manifest for clusters without a network yet. It patches Deployments with hostnetwork.yaml
// and lets restricted namespaces admit such pods. Other documents stay unchanged, byte for byte.
func OnHostNetwork(manifest []byte) ([]byte, error) {
	documents := bytes.Split(manifest, []byte("\n---\n"))
	for i, data := range documents {
		var o map[string]any
		if err := yaml.Unmarshal(data, &o); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		changed, err := onHostNetwork(o)
		if err != nil {
			return nil, err
		}
		if !changed {
			continue
		}
		if documents[i], err = yaml.Marshal(o); err != nil {
			return nil, err
		}
		if i < len(documents)-1 {
			documents[i] = bytes.TrimSuffix(documents[i], []byte("\n"))
		}
	}
	return bytes.Join(documents, []byte("\n---\n")), nil
}

func onHostNetwork(o map[string]any) (changed bool, err error) {
	switch o["kind"] {
	case "Deployment":
		var patch map[string]any
		if err := yaml.Unmarshal(read("hostnetwork.yaml").Data, &patch); err != nil {
			return false, err
		}
		merge(o, patch)
		return true, nil
	case "Namespace":
		meta, _ := o["metadata"].(map[string]any)    //nolint:errcheck // without it there are no labels
		labels, _ := meta["labels"].(map[string]any) //nolint:errcheck // likewise
		for _, l := range podSecurity {
			if labels[l] == "restricted" {
				labels[l], changed = "privileged", true
			}
		}
	}
	return changed, nil
}

// merge merges a patch into an object. Lists are replaced.
func merge(into, patch map[string]any) {
	for k, v := range patch {
		was, both := into[k].(map[string]any)
		if is, ok := v.(map[string]any); ok && both {
			merge(was, is)
			continue
		}
		into[k] = v
	}
}
