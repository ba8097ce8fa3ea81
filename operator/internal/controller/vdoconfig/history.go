package vdoconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// historyOf is what is remembered, or, of an installation that has no history yet, what runs.
func (g *gatherer) historyOf() revision.History {
	h := g.inventory.Memory().Revisions.Imported()
	if _, known := h.InForce(); known || g.inventory.Len() == 0 {
		return h
	}
	rev, complete := g.running()
	if rev.Bundle == "" || len(rev.Releases) == 0 {
		return h
	}
	return h.Adopt(rev, complete, revision.Beginning{Now: g.at0(), Attempt: g.attempt()})
}

// historyLost tells whether there is no record of what the status knows to have been installed.
func (s *site) historyLost() bool {
	st := &s.config.Status
	return s.inventory.Len() == 0 && len(s.inventory.Memory().Revisions.Records) == 0 && (st.Revision != "" || st.Bundle != "")
}

// releasesOf is what a status says that a revision is of.
func releasesOf(row *v1alpha1.RevisionStatus) revision.Revision {
	return revision.Revision{Bundle: row.Bundle, Releases: strings.Split(row.Releases, ", ")}
}

// running is what runs as a revision, and whether all of it was seen rolled out.
func (g *gatherer) running() (rev revision.Revision, complete bool) {
	rev = revision.Revision{Bundle: lastFrom(g.config, g.inventory), Source: g.bundle.source.Name, Contents: map[string]string{}}
	complete = true
	for _, d := range inOrder {
		v, there := g.installed[d]
		if !there || !g.runs(d) {
			continue
		}
		id := matrix.ReleaseID{Driver: d, Version: v}.String()
		rev.Releases = append(rev.Releases, id)
		if made := g.contentOf(id); made != "" {
			rev.Contents[string(d)] = made
		}
		complete = complete && g.inventory.Complete(d) == v.String()
	}
	return rev, complete
}

// contentOf is what the objects of a release were made of, "" where they do not agree.
func (s *site) contentOf(release string) string {
	all := map[string]bool{}
	for _, e := range s.inventory.Entries() {
		if _, made, _ := strings.Cut(e.Content, "/"); e.Release == release {
			all[made] = true
		}
	}
	if len(all) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(all))[0]
}
