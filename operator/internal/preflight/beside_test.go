package preflight

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// What other sets say of a source is not hidden by the operator's, nor contradicted, and nothing
// that the set has or had is taken away.
func TestTheOperatorsSetHidesNothingOfOthers(t *testing.T) {
	const source, mirror, general = "up.example/k8s/driver", "m.site/vdo/up.example/k8s/driver", "general.site/k8s/driver"
	is := func(policy mirrorset.Policy, mirrors ...string) mirrorset.Entries {
		return mirrorset.Entries{{Source: source, Mirrors: mirrors, Policy: policy}}
	}
	as := func(r MirrorRule, policy mirrorset.Policy) MirrorRule { r.Policy = policy; return r }
	tags := rule("ImageTagMirrorSet t", "up.example", "general.site/up")
	tags.Tags = true
	const never = mirrorset.NeverContactSource
	for name, c := range map[string]struct {
		set    OwnSet
		others []MirrorRule
		want   string
	}{
		"alone":                     {OwnSet{Wanted: is("", mirror)}, nil, mirror},
		"a folder is led elsewhere": {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "up.example/k8s", "general.site/k8s")}, mirror + " " + general},
		"a host is, to several":     {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "up.example", "one.site", "two.site/x"), rule("b", "up.example", "one.site")}, mirror + " one.site/k8s/driver two.site/x/k8s/driver"},
		"the longest counts":        {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "up.example", "one.site"), rule("b", "up.example/k8s", "general.site/k8s")}, mirror + " " + general},
		"any host of the domain":    {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "*.example", "w.site"), rule("b", "up.example", "up.example")}, mirror + " w.site/k8s/driver"},
		"to where it is led anyway": {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "up.example", "m.site/vdo/up.example")}, mirror},
		"to itself":                 {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "*.example", "up.example")}, mirror},
		"of just that source the nodes have both anyway": {OwnSet{Wanted: is("", mirror)}, []MirrorRule{rule("a", "up.example", "one.site"), rule("b", source, "two.site")}, mirror},
		"it has had more":                 {OwnSet{Wanted: is("", mirror), Was: is("", "old.site"), Live: is("", "older.site", "old.site")}, nil, mirror + " old.site older.site"},
		"another source is not asked":     {OwnSet{Wanted: is("", mirror)}, []MirrorRule{as(rule("b", source, "two.site"), never)}, mirror + " never"},
		"nor that of a broader one":       {OwnSet{Wanted: is("", mirror)}, []MirrorRule{as(rule("a", "up.example/k8s", "general.site/k8s"), never)}, mirror + " " + general + " never"},
		"a narrower one says otherwise":   {OwnSet{Wanted: is("", mirror)}, []MirrorRule{as(rule("a", "up.example", "one.site"), never), rule("b", source, "two.site")}, mirror},
		"an entry that is there stays":    {OwnSet{Wanted: is("", mirror), Live: is("", mirror)}, []MirrorRule{as(rule("b", source, "two.site"), never)}, mirror},
		"as it is":                        {OwnSet{Wanted: is("", mirror), Was: is("", mirror), Live: is(never, mirror)}, []MirrorRule{rule("b", source, "two.site")}, mirror + " never"},
		"and as it was":                   {OwnSet{Wanted: is("", mirror), Was: is(never, mirror)}, nil, mirror + " never"},
		"names with a tag would be lost":  {OwnSet{Wanted: is("", mirror)}, []MirrorRule{tags}, "left: an entry of the operator would hide from names with a tag what ImageTagMirrorSet t says of up.example"},
		"unless a set has just that":      {OwnSet{Wanted: is("", mirror)}, []MirrorRule{tags, rule("b", source, "two.site")}, mirror},
		"or they are hidden already":      {OwnSet{Wanted: is("", mirror)}, []MirrorRule{tags, rule("a", "up.example/k8s", "general.site/k8s")}, mirror + " " + general},
		"what is there stays in any case": {OwnSet{Wanted: is("", mirror), Was: is("", mirror)}, []MirrorRule{tags}, mirror},
	} {
		t.Run(name, func(t *testing.T) {
			entries, left := c.set.Beside(c.others)
			got := "left: " + left[source].Why
			if e, there := entries.Get(source); there {
				got = strings.Join(e.Mirrors, " ")
				if e.Policy == never {
					got += " never"
				}
			}
			require.Equal(t, c.want, got)
			again, _ := OwnSet{Wanted: c.set.Wanted, Was: entries, Live: entries}.Beside(c.others)
			require.Equal(t, entries, again, "it stays as it is")
		})
	}
}

// The set only grows, and not without end: what is there stays, whatever it is, and what there is no
// room for is told with how the set begins anew.
func TestTheOperatorsSetIsBounded(t *testing.T) {
	const source, next = "up.example/driver", "next.site/vdo/up.example/driver"
	mirrors := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("m%03d.site/vdo/up.example/driver", i))
		}
		return all
	}
	entry := func(mirrors ...string) mirrorset.Entries {
		return mirrorset.Entries{{Source: source, Mirrors: mirrors}}
	}
	beside := func(o OwnSet, others ...MirrorRule) ([]string, Left) {
		entries, left := o.Beside(others)
		e, _ := entries.Get(source)
		again, _ := OwnSet{Wanted: o.Wanted, Was: entries, Live: entries}.Beside(others)
		require.Equal(t, entries, again, "it stays as it is")
		return e.Mirrors, left[source]
	}

	has, left := beside(OwnSet{Wanted: entry(next), Was: entry(mirrors(15)...)})
	require.Equal(t, append([]string{next}, mirrors(15)...), has)
	require.Empty(t, left)
	has, left = beside(OwnSet{Wanted: entry(next), Was: entry(mirrors(8)...), Live: entry(mirrors(16)...)})
	require.Equal(t, mirrors(16), has)
	require.Equal(t, "its set has 16 mirrors of this source, would need 17, and gets no more than 16 beside those of others' sets", left.Why)
	require.Contains(t, left.Remedy, "set spec.openShift.mirrorSet of the VDOConfig to Check, wait until status.plan.actions counts it under keep, `oc delete imagedigestmirrorset vdo-operator`, wait until it is not counted any more, and set Write again")
	has, left = beside(OwnSet{Wanted: entry(mirrors(1)...), Live: entry(mirrors(20)...)})
	require.Equal(t, mirrors(20), has, "who has put more into it by hand keeps them")
	require.Empty(t, left, "it is led there")
	has, left = beside(OwnSet{Wanted: entry(next), Was: entry(mirrors(16)...)}, rule("a", "up.example", "general.site"))
	require.Equal(t, mirrors(16), has)
	require.Contains(t, left.Why, "would need 18")

	site := rule("a", "up.example", "general.site/up") // of others nodes ask each anyway
	for i := range 16 {
		site.Mirrors = append(site.Mirrors, fmt.Sprintf("g%03d.site/up", i))
	}
	theirs := leading([]MirrorRule{site}, source).mirrors()
	has, left = beside(OwnSet{Wanted: entry(next)}, site)
	require.Equal(t, append([]string{next}, theirs...), has)
	require.Empty(t, left)
	has, left = beside(OwnSet{Wanted: entry(mirrors(1)...), Was: entry(has...)}, site)
	require.Equal(t, append(append(mirrors(1), next), theirs...), has)
	require.Empty(t, left)
	has, left = beside(OwnSet{Wanted: entry(next), Was: entry(has...)}, rule("a", "up.example", "moved.site/up"))
	require.NotContains(t, has, "moved.site/up/driver", "what others have given up counts, or it would have no end")
	require.Contains(t, left.Why, "has 19 mirrors of this source, would need 20")

	var full mirrorset.Entries
	for i := range 199 {
		full = append(full, mirrorset.Entry{Source: fmt.Sprintf("a.example/%03d", i), Mirrors: []string{"m.site/a"}})
	}
	wanted := append(mirrorset.Entries{full[7]}, mirrorset.Union(entry(next), mirrorset.Entries{{Source: "up.example/other", Mirrors: []string{"next.site/other"}}})...)
	entries, lefts := OwnSet{Wanted: wanted, Was: full[:100], Live: full[50:]}.Beside(nil)
	require.Equal(t, append(slices.Clone(full), wanted[1]), entries)
	require.Len(t, lefts, 1)
	require.Equal(t, "its set has 200 sources, and gets no more than 200", lefts["up.example/other"].Why)
}

// Sets that lead an image to the mirror may do so at the cost of others: that is said, and what keeps
// all of them from the nodes holds everything back.
func TestWhatSetsHideOrContradictIsFound(t *testing.T) {
	const driver, there = "up.example/driver", "m.site/vdo/up.example/driver"
	i := &Images{Workloads: []render.Workload{plugin("vsphere-csi-node", "linux", "driver")},
		Mirrors: &Mirrors{Repository: "m.site/vdo", Bundle: "m.site/vdo@" + image.DigestOf([]byte("x")).String()}}
	found := func(rules ...MirrorRule) (all []Result) {
		i.Mirrors.Rules = rules
		for _, r := range CheckImages(i) {
			if r.ID == "image-mirror-set" && r.Action != Pass {
				all = append(all, r)
			}
		}
		return all
	}
	as := func(r MirrorRule, tags bool, policy mirrorset.Policy) MirrorRule {
		r.Tags, r.Policy = tags, policy
		return r
	}
	own, site := rule("ImageDigestMirrorSet vdo-drivers", driver, there), rule("ImageDigestMirrorSet site", "up.example", "general.site/up")
	require.Empty(t, found(own))
	require.Empty(t, found(rule("ImageDigestMirrorSet vdo-drivers", driver, there, "general.site/up/driver"), site))

	warned := found(own, as(site, false, mirrorset.NeverContactSource), as(rule("ImageTagMirrorSet t", "up.example", "general.site/up"), true, mirrorset.NeverContactSource))
	require.Len(t, warned, 1)
	require.Equal(t, Warn, warned[0].Action)
	require.Equal(t, []string{driver}, warned[0].Objects)
	require.Contains(t, warned[0].Found, ": ImageDigestMirrorSet vdo-drivers hides that ImageDigestMirrorSet site, ImageTagMirrorSet t leads up.example to general.site/up, "+
		"where ImageTagMirrorSet t leads names of up.example with a tag, that ImageDigestMirrorSet site, ImageTagMirrorSet t has up.example never be asked")
	require.Equal(t, "of up.example/driver: add to its mirrors in ImageDigestMirrorSet vdo-drivers those of up.example, with the rest of the name; "+
		"apply an ImageTagMirrorSet of just this source, which drains the nodes; set its mirrorSourcePolicy in ImageDigestMirrorSet vdo-drivers to NeverContactSource, which drains the nodes", warned[0].Remedy)

	held := found(own, rule("ImageDigestMirrorSet a", "other.example", "x.site"), as(rule("ImageTagMirrorSet b", "other.example", "x.site"), true, mirrorset.NeverContactSource))
	require.Len(t, held, 1)
	require.Equal(t, BlockInstall, held[0].Action)
	require.NotEmpty(t, held[0].Drivers)
	require.Equal(t, []string{"other.example"}, held[0].Objects)
	require.Contains(t, held[0].Found, ": ImageDigestMirrorSet a AllowContactingSource, ImageTagMirrorSet b NeverContactSource")

	i.Mirrors.Left = map[string]Left{driver: {"an entry would hide others", "apply a set of just {}"}}
	left := found()
	require.Contains(t, left[0].Found, "; the operator does not lead them there: an entry would hide others")
	require.Equal(t, "apply a set of just up.example/driver", left[0].Remedy)
	left = found(own, site)
	require.Len(t, left, 1)
	require.Contains(t, left[0].Found, "leads up.example to general.site/up; the operator does not add that: an entry would hide others")
	require.Contains(t, left[0].Remedy, "; apply a set of just up.example/driver")
}
