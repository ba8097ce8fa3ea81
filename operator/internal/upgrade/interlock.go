package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// draining is for how long a node that was cordoned counts as being emptied; longer than
	// that it is kept out of use, which may be for weeks. A time that is as much ahead of ours
	// says nothing: whoever may change nodes has written it.
	draining = time.Hour
	// settling is how long a vCenter counts as being upgraded after its version changed: its
	// services start one after the other.
	settling = 10 * time.Minute
)

// Node is what an upgrade looks at of a node.
type Node struct {
	Name    string
	Kubelet string // such as "v1.33.4"; "" where it is not known
	// Cordoned tells whether it takes no pods, and Since from when on, the zero time where that is
	// not known.
	Cordoned bool
	Since    time.Time
}

// NodesChange says that nodes are being upgraded or emptied, "" where they are not: kubelets
// are of different minor versions, or of different patches while a node is cordoned, or a node
// was cordoned lately. Pools that stay at different patches are no upgrade.
func NodesChange(nodes []Node, now time.Time) string {
	counts, minors := map[string]int{}, map[matrix.Minor]bool{}
	var lately, cordoned []string
	for _, n := range nodes {
		if v, err := matrix.ParseKubernetes(n.Kubelet); err == nil {
			counts[n.Kubelet]++
			minors[v.Minor()] = true
		}
		if !n.Cordoned {
			continue
		}
		cordoned = append(cordoned, n.Name)
		if since := now.Sub(n.Since); !n.Since.IsZero() && since > -draining && since < draining {
			lately = append(lately, n.Name)
		}
	}
	switch {
	case len(minors) > 1, len(counts) > 1 && len(cordoned) > 0:
		return "nodes are being upgraded: kubelets are of " + counted(counts)
	case len(lately) > 0:
		slices.Sort(lately)
		return "nodes are being emptied: " + few(lately)
	}
	return ""
}

// counted is "v1.33.1 (2 nodes), v1.34.0 (1 node)".
func counted(all map[string]int) string {
	var out []string
	for version, n := range all {
		plural := "s"
		if n == 1 {
			plural = ""
		}
		out = append(out, fmt.Sprintf("%s (%d node%s)", version, n, plural))
	}
	slices.Sort(out)
	return few(out)
}

func few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// SeenVCenters is what is remembered of vCenters once their versions of now were seen, sorted
// by name. Of one whose version is not known now what was known stays; those that are not
// among names are forgotten.
func SeenVCenters(before []revision.VCenter, names []string, versions map[string]string, now time.Time) []revision.VCenter {
	var all []revision.VCenter
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		i := slices.IndexFunc(before, func(v revision.VCenter) bool { return v.Name == name })
		is, known := versions[name]
		switch {
		case i < 0 && known:
			all = append(all, revision.VCenter{Name: name, Version: is})
		case i >= 0 && known && is != before[i].Version:
			all = append(all, revision.VCenter{Name: name, Version: is, Changed: now})
		case i >= 0:
			all = append(all, before[i])
		}
	}
	return all
}

// VCentersChange says that a vCenter is being upgraded, "" where none is.
func VCentersChange(seen []revision.VCenter, now time.Time) string {
	var all []string
	for _, v := range seen {
		if since := now.Sub(v.Changed); !v.Changed.IsZero() && since >= 0 && since < settling {
			all = append(all, fmt.Sprintf("vCenter %s is of version %s since %s", v.Name, v.Version, v.Changed.UTC().Format(time.RFC3339)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: drivers are upgraded %s after the last change", few(all), settling)
}
