package matrix

import (
	"bytes"
	_ "embed" // the default document
	"fmt"
	"slices"

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
	written := struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Document   `yaml:",inline"`
	}{APIVersion, Kind, *d}
	written.Releases, written.Services = releases, services
	written.Issued, written.Expires = d.Issued.UTC(), d.Expires.UTC()
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

// MarshalYAML names the releases in one line.
func (n Need) MarshalYAML() (any, error) {
	return struct {
		Object string   `yaml:"object"`
		Of     []string `yaml:"of,flow"`
		Has    []string `yaml:"has,omitempty"`
	}{n.Object, each(n.Of, ReleaseID.String), n.Has}, nil
}

// MarshalYAML has the service in the place of the driver.
func (s ServiceRelease) MarshalYAML() (any, error) {
	return struct {
		Service Driver   `yaml:"service"`
		Version Version  `yaml:"version"`
		State   State    `yaml:"state"`
		Reason  string   `yaml:"reason,omitempty"`
		Image   string   `yaml:"image"`
		Basis   string   `yaml:"basis"`
		Notes   []string `yaml:"notes,omitempty"`
	}{s.Driver, s.Version, s.State, s.Reason, s.Image, s.Basis, s.Notes}, nil
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

//go:embed default.yaml
var defaultDocument []byte

// defaultNeeds is its part "needs", which `make needs` writes.
//
//go:embed default-needs.yaml
var defaultNeeds []byte

// DefaultName is what errors call the default document.
const DefaultName = "default matrix"

// Default returns the bytes of the document that the programs carry.
func Default() []byte { return slices.Concat(defaultDocument, defaultNeeds) }
