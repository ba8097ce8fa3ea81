package image

import (
	"fmt"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// move sends one repository, or with a trailing slash a tree of them, to another location.
type move struct{ from, to, why string }

// moves lists the former registries in the drivers' manifests. Sources:
// kubernetes-sigs/vsphere-csi-driver#3053, kubernetes/cloud-provider-vsphere#1251 (deletion in
// September 2024), and the Kubernetes project's announcement of 2023 that k8s.gcr.io is frozen.
var moves = []move{
	{"gcr.io/cloud-provider-vsphere/csi/release/driver", "registry.k8s.io/csi-vsphere/driver", "gcr.io/cloud-provider-vsphere was deleted in September 2024"},
	{"gcr.io/cloud-provider-vsphere/csi/release/syncer", "registry.k8s.io/csi-vsphere/syncer", "gcr.io/cloud-provider-vsphere was deleted in September 2024"},
	{"gcr.io/cloud-provider-vsphere/cpi/release/manager", "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere", "gcr.io/cloud-provider-vsphere was deleted in September 2024"},
	{"k8s.gcr.io/", "registry.k8s.io/", "k8s.gcr.io has been frozen since 2023"},
	{"quay.io/k8scsi/", "registry.k8s.io/sig-storage/", "quay.io/k8scsi is no longer maintained"},
}

// Relocate returns the current location of an image and why it moved, with the same tag and digest.
// For a reference that did not move it returns the reference and "".
func Relocate(r Reference) (moved Reference, why string) {
	repo := r.Repository()
	for _, m := range moves {
		if rest, ok := strings.CutPrefix(repo, m.from); ok && (rest == "" || strings.HasSuffix(m.from, "/")) {
			r.host, r.path = splitHost(m.to + rest)
			return r, m.why
		}
	}
	return r, ""
}

// SourceMap maps the registry in an image's name to the one to fetch from: the longest prefix of
// host and path wins. A rule to a host alone maps what is below its prefix. The zero value maps nothing.
type SourceMap struct{ rules []move }

// Add reads one rule HOST[/PATH]=HOST[/PATH]. Prefixes match whole path components.
func (m *SourceMap) Add(rule string) error {
	bad := func(format string, args ...any) error {
		return fault.Errorf(fault.InvalidInput, "parse source map", fmt.Sprintf("%q", rule),
			"write it as HOST[/PATH]=HOST[/PATH], for example registry.k8s.io=mirror.corp:5000/k8s", format, args...)
	}
	from, to, ok := strings.Cut(rule, "=")
	if !ok || from == "" || to == "" {
		return bad("there is no host on both sides of =")
	}
	for _, side := range []string{from, to} {
		host, path, hasPath := strings.Cut(side, "/")
		if !hostForm.MatchString(host) || (hasPath && !pathForm.MatchString(path)) {
			return bad("%q is not a registry host with an optional path", side)
		}
		if !isHost(host) {
			return bad("%q has no dot and no port, so references read it as a path of docker.io", host)
		}
	}
	if ref, err := ParseReference(from + "/x/x"); err != nil || ref.Repository() != from+"/x/x" {
		return bad("references name another registry than %q, docker.io for example", from)
	}
	for _, r := range m.rules {
		if r.from == from {
			return bad("%q is mapped twice", from)
		}
	}
	m.rules = append(m.rules, move{from: from, to: to})
	return nil
}

// Apply returns the reference to fetch r from. Tag and digest stay.
func (m SourceMap) Apply(r Reference) Reference {
	repo := r.Repository()
	best, target := -1, ""
	for _, rule := range m.rules {
		rest, ok := strings.CutPrefix(repo, rule.from)
		noPath := rest == "" && !strings.Contains(rule.to, "/")
		if !ok || noPath || (rest != "" && rest[0] != '/') || len(rule.from) <= best {
			continue
		}
		best, target = len(rule.from), rule.to+rest
	}
	if best < 0 {
		return r
	}
	host, path, _ := strings.Cut(target, "/")
	r.host, r.path = host, path
	return r
}
