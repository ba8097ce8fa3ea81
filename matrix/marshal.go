package matrix

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Marshal returns the canonical form of the document: releases sorted by driver
// and version, keys in the order of the specification, optional keys left out
// where they say nothing.
func (d *Document) Marshal() ([]byte, error) {
	releases := slices.Clone(d.Releases)
	slices.SortStableFunc(releases, func(a, b Release) int { return a.ReleaseID.Compare(b.ReleaseID) })
	services := slices.Clone(d.Services)
	slices.SortStableFunc(services, func(a, b ServiceRelease) int { return a.ReleaseID.Compare(b.ReleaseID) })
	written := yamlDocument{
		APIVersion: APIVersion, Kind: Kind, Serial: d.Serial,
		Issued: plainTime(d.Issued), Expires: plainTime(d.Expires),
		Aliases: each(d.Aliases, writeAlias), Releases: each(releases, writeRelease),
		Services: each(services, writeService), Needs: each(d.Needs, writeNeed),
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(written); err != nil {
		return nil, fmt.Errorf("write matrix: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write matrix: %w", err)
	}
	return out.Bytes(), nil
}

// The types below are the document as YAML shows it, key by key.
type (
	yamlDocument struct {
		APIVersion string        `yaml:"apiVersion"`
		Kind       string        `yaml:"kind"`
		Serial     int64         `yaml:"serial"`
		Issued     *yaml.Node    `yaml:"issued"`
		Expires    *yaml.Node    `yaml:"expires"`
		Aliases    []yamlAlias   `yaml:"vsphereAliases,omitempty"`
		Releases   []yamlRelease `yaml:"releases"`
		Services   []yamlService `yaml:"services,omitempty"`
		Needs      []yamlNeed    `yaml:"needs,omitempty"`
	}
	yamlService struct {
		Service Driver   `yaml:"service"`
		Version string   `yaml:"version"`
		State   State    `yaml:"state"`
		Reason  string   `yaml:"reason,omitempty"`
		Image   string   `yaml:"image"`
		Basis   string   `yaml:"basis"`
		Notes   []string `yaml:"notes,omitempty"`
	}
	yamlNeed struct {
		Object string   `yaml:"object"`
		Of     []string `yaml:"of,flow"`
		Has    []string `yaml:"has,omitempty"`
	}
	yamlAlias struct {
		Reports   string `yaml:"reports"`
		FromBuild uint64 `yaml:"fromBuild,omitempty"`
		Means     string `yaml:"means"`
		Basis     string `yaml:"basis"`
	}
	yamlRelease struct {
		Driver     Driver         `yaml:"driver"`
		Version    string         `yaml:"version"`
		State      State          `yaml:"state"`
		Reason     string         `yaml:"reason,omitempty"`
		OneWay     string         `yaml:"oneWay,omitempty"`
		Kubernetes yamlRange      `yaml:"kubernetes"`
		VSphere    *yamlRange     `yaml:"vsphere,omitempty"`
		Requires   []yamlRequired `yaml:"requires,omitempty"`
		Manifests  []yamlManifest `yaml:"manifests"`
		Images     []yamlImage    `yaml:"images,omitempty"`
		Notes      []string       `yaml:"notes,omitempty"`
	}
	yamlRange struct {
		Min     string `yaml:"min"`
		Max     string `yaml:"max,omitempty"`
		Basis   string `yaml:"basis"`
		Derived bool   `yaml:"derived,omitempty"`
	}
	yamlRequired struct {
		Driver   Driver `yaml:"driver"`
		Version  string `yaml:"version,omitempty"`
		Optional bool   `yaml:"optional,omitempty"`
	}
	yamlManifest struct {
		Name   string `yaml:"name"`
		Part   Part   `yaml:"part,omitempty"`
		URL    string `yaml:"url"`
		Size   int64  `yaml:"size"`
		SHA256 string `yaml:"sha256"`
	}
	yamlImage struct {
		From  string `yaml:"from"`
		To    string `yaml:"to"`
		Basis string `yaml:"basis"`
	}
)

func writeAlias(a VSphereAlias) yamlAlias {
	return yamlAlias{Reports: a.Reports.String(), FromBuild: a.FromBuild, Means: a.Means.String(), Basis: a.Basis}
}

func writeNeed(n Need) yamlNeed {
	return yamlNeed{Object: n.Object, Of: each(n.Of, ReleaseID.String), Has: n.Has}
}

func writeService(s ServiceRelease) yamlService {
	return yamlService{s.Driver, s.Version.String(), s.State, s.Reason, s.Image, s.Basis, s.Notes}
}

func writeRelease(r Release) yamlRelease {
	out := yamlRelease{
		Driver: r.Driver, Version: r.Version.String(), State: r.State, Reason: r.Reason, OneWay: r.OneWay,
		Kubernetes: yamlRange{r.Kubernetes.Min.String(), r.Kubernetes.Max.String(), r.Kubernetes.Basis, r.Kubernetes.Derived},
		Requires: each(r.Requires, func(q Requirement) yamlRequired {
			return yamlRequired{q.Driver, q.Version.String(), q.Optional}
		}),
		Manifests: each(r.Manifests, func(m Manifest) yamlManifest { return yamlManifest(m) }),
		Images:    each(r.Images, func(i ImageOverride) yamlImage { return yamlImage(i) }),
		Notes:     r.Notes,
	}
	if r.VSphere != (VSphereRange{}) {
		out.VSphere = &yamlRange{r.VSphere.Min.String(), r.VSphere.Max.String(), r.VSphere.Basis, r.VSphere.Derived}
	}
	return out
}

// plainTime is a time without quotes, as people write it.
func plainTime(t time.Time) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!timestamp", Value: t.UTC().Format(time.RFC3339Nano)}
}

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}
