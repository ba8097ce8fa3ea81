package matrix_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

var update = flag.Bool("update", false, "rewrite what the cases want")

// ask is one question to the resolver.
type ask struct {
	doc       *matrix.Document
	facts     matrix.Facts
	pins      matrix.Pins
	policy    matrix.Policy
	available matrix.Available
}

func (a ask) resolve() (matrix.Selection, *matrix.Refusal) {
	return matrix.Resolve(a.doc, a.facts, a.pins, a.policy, a.available)
}

func TestResolveCases(t *testing.T) {
	files := must.Have(filepath.Glob("testdata/resolve/*.txtar"))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := must.Have(txtar.ParseFile(file))(t)
			require.NotEmpty(t, archive.Comment, "say what the case shows")
			question := readCase(t, archive)
			got := answer(question)
			if *update {
				archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
				archive.Files = append(archive.Files, txtar.File{Name: "want", Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o600))
				return
			}
			require.Equal(t, section(archive, "want"), got)
			slices.Reverse(question.doc.Releases)
			slices.Reverse(question.doc.Aliases)
			require.Equal(t, got, answer(question), "the order of releases and aliases does not matter")
		})
	}
}

func section(archive *txtar.Archive, name string) string {
	for _, f := range archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// answer prints what the resolver says.
func answer(a ask) string {
	var out strings.Builder
	s, refusal := a.resolve()
	for _, c := range s.Choices {
		fmt.Fprintf(&out, "chosen %s\n", c.Release.ReleaseID)
		for _, r := range c.Reasons {
			fmt.Fprintf(&out, "  %s\n", r)
		}
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(&out, "warning %s: %s\n", w.Code, w)
	}
	if refusal != nil {
		fmt.Fprintf(&out, "refused: %s\nhint: %s\n", strings.Join(refusal.Lines(), "\n  "), refusal.Fault().Hint)
	}
	return out.String()
}

func readCase(t *testing.T, archive *txtar.Archive) ask {
	a := ask{doc: defaultDocument(t), policy: matrix.Policy{Rules: map[matrix.Driver]matrix.Rule{}}}
	if text := section(archive, "releases"); text != "" {
		a.doc = readReleases(t, text)
	}
	for _, line := range strings.Split(strings.TrimSpace(section(archive, "site")), "\n") {
		key, value, found := strings.Cut(line, ":")
		require.True(t, found, line)
		readLine(t, &a, key, strings.TrimSpace(value))
	}
	return a
}

func readLine(t *testing.T, a *ask, key, value string) {
	t.Helper()
	words := strings.Fields(value)
	var err error
	switch key {
	case "kubernetes":
		a.facts.Kubernetes, err = matrix.ParseKubernetes(value)
	case "vcenter":
		v := matrix.VCenter{Name: words[0]}
		v.Version = must.Have(matrix.ParseVSphere(words[1]))(t)
		if len(words) > 2 {
			v.Build, err = strconv.ParseUint(words[2], 10, 64)
		}
		a.facts.VCenters = append(a.facts.VCenters, v)
	case "distribution":
		a.facts.Distribution = value
	case "installed":
		a.facts.Installed = readIDs(t, words)
	case "pin":
		a.pins = readIDs(t, words)
	case "bundle":
		a.available = matrix.Available{}
		for _, w := range words {
			a.available[w] = true
		}
	case "policy":
		for _, w := range words {
			driver, rule, _ := strings.Cut(w, "=")
			a.policy.Rules[matrix.Driver(driver)] = matrix.Rule(rule)
		}
	default:
		t.Fatalf("unknown key %q", key)
	}
	require.NoError(t, err, value)
}

func readIDs(t *testing.T, words []string) map[matrix.Driver]matrix.Version {
	out := map[matrix.Driver]matrix.Version{}
	for _, w := range words {
		id := must.Have(matrix.ParseReleaseID(w))(t)
		out[id.Driver] = id.Version
	}
	return out
}

// readReleases reads the short form of a matrix that README.md describes.
func readReleases(t *testing.T, text string) *matrix.Document {
	doc := &matrix.Document{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		require.GreaterOrEqual(t, len(words), 4, line) // RELEASE STATE KUBERNETES VSPHERE, or an alias
		if words[0] == "alias" {
			build := must.Have(strconv.ParseUint(words[2], 10, 64))(t)
			doc.Aliases = append(doc.Aliases, matrix.VSphereAlias{Reports: version(t, words[1]), FromBuild: build, Means: version(t, words[3])})
			continue
		}
		doc.Releases = append(doc.Releases, readRelease(t, words))
	}
	return doc
}

func readRelease(t *testing.T, words []string) matrix.Release {
	id, err := matrix.ParseReleaseID(words[0])
	require.NoError(t, err, words)
	r := matrix.Release{ReleaseID: id, State: matrix.State(words[1]), Reason: "for a reason"}
	require.True(t, r.State.Valid(), words)
	k8s := strings.Trim(words[2], "()")
	first, last, isRange := strings.Cut(k8s, "-")
	if !isRange {
		last = first
	}
	r.Kubernetes.Derived = k8s != words[2]
	require.NoError(t, r.Kubernetes.Min.UnmarshalText([]byte(first)))
	require.NoError(t, r.Kubernetes.Max.UnmarshalText([]byte(last)))
	if words[3] != "-" {
		lowest, highest, _ := strings.Cut(words[3], "-")
		r.VSphere.Min = version(t, lowest)
		if highest != "" {
			r.VSphere.Max = must.Have(matrix.ParseCeiling(highest))(t)
		}
	}
	for _, w := range words[4:] {
		name, isOptional := strings.CutSuffix(w, "?")
		driver, v, _ := strings.Cut(name, "@")
		need := matrix.Requirement{Driver: matrix.Driver(driver), Optional: isOptional}
		require.NoError(t, need.Version.UnmarshalText([]byte(v)))
		r.Requires = append(r.Requires, need)
	}
	return r
}

func TestResolveAnswersEveryQuestion(t *testing.T) {
	for name, a := range map[string]ask{
		"nothing":        {},
		"no facts":       {doc: defaultDocument(t)},
		"empty document": {doc: &matrix.Document{}, facts: matrix.Facts{Kubernetes: version(t, "1.33.0")}},
		"empty release":  {doc: &matrix.Document{Releases: []matrix.Release{{}}}},
		"unknown driver": {doc: &matrix.Document{Releases: []matrix.Release{{ReleaseID: matrix.ReleaseID{Driver: "x"}}}}},
		"release without a version": {doc: &matrix.Document{Releases: []matrix.Release{{ReleaseID: matrix.ReleaseID{Driver: matrix.CSI}, Requires: []matrix.Requirement{{}}}}},
			facts: matrix.Facts{Kubernetes: version(t, "1.33.0")}},
		"unknown vCenter": {doc: defaultDocument(t), facts: matrix.Facts{Kubernetes: version(t, "1.33.0"), VCenters: []matrix.VCenter{{}}}},
		"a vCenter above a range without a minimum": {doc: &matrix.Document{Releases: []matrix.Release{{
			ReleaseID:  must.Have(matrix.ParseReleaseID("cpi@1.33.0"))(t),
			Kubernetes: matrix.KubernetesRange{Min: matrix.Minor{Major: 1, Minor: 33}, Max: matrix.Minor{Major: 1, Minor: 33}},
			VSphere:    matrix.VSphereRange{Max: must.Have(matrix.ParseCeiling("8.0"))(t)}}}},
			facts:  matrix.Facts{Kubernetes: version(t, "1.33.0"), VCenters: []matrix.VCenter{{Version: version(t, "9.0.0")}}},
			policy: matrix.Policy{Rules: map[matrix.Driver]matrix.Rule{matrix.CSI: matrix.Disabled}}},
		"bundle of nothing": {doc: defaultDocument(t), facts: matrix.Facts{Kubernetes: version(t, "1.33.0")}, available: matrix.Available{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, refusal := a.resolve()
			require.NotNil(t, refusal)
			require.Empty(t, s.Choices)
			require.NotContains(t, refusal.Error(), "\n")
			require.NotEmpty(t, refusal.Error())
			require.Equal(t, fault.Incompatible, refusal.Fault().Reason)
			require.NotEmpty(t, refusal.Fault().Hint)
			var back *matrix.Refusal
			require.ErrorAs(t, refusal.Fault(), &back)
		})
	}
	all := map[matrix.Driver]matrix.Rule{}
	for _, d := range matrix.Drivers() {
		all[d] = matrix.Disabled
	}
	s, refusal := matrix.Resolve(nil, matrix.Facts{}, nil, matrix.Policy{Rules: all}, nil)
	require.Nil(t, refusal)
	require.Empty(t, s.Choices)
	require.NotEmpty(t, (&matrix.Refusal{}).Error())
}

func TestResolveChangesNothingOfItsQuestion(t *testing.T) {
	doc := defaultDocument(t)
	slices.Reverse(doc.Releases)
	before := slices.Clone(doc.Releases)
	facts := matrix.Facts{Kubernetes: version(t, "1.33.0"), Installed: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.0.0")}}
	installed := maps.Clone(facts.Installed)
	s, refusal := matrix.Resolve(doc, facts, nil, matrix.Policy{}, nil)
	require.Nil(t, refusal)
	for _, c := range s.Choices {
		got, chosen := s.Choice(c.Release.Driver)
		require.True(t, chosen && got.Release.Driver == c.Release.Driver)
	}
	_, chosen := s.Choice(matrix.CNI)
	require.False(t, chosen, "no one asks for it")
	require.Equal(t, before, doc.Releases)
	require.Equal(t, installed, facts.Installed)
}

// withServices is the default document with other services.
func withServices(t *testing.T, services string) (*matrix.Document, error) {
	text := string(matrix.Default())
	from, to := strings.Index(text, "\nservices:\n"), strings.Index(text, "\nneeds:\n")
	require.True(t, 0 < from && from < to)
	return matrix.Parse("m.yaml", []byte(text[:from]+"\nservices:\n"+services+text[to:]))
}

func entry(service, version, state, more string) string {
	return fmt.Sprintf("  - {service: %s, version: %s, state: %s, image: registry.test/%s:v%s, basis: test%s}\n", service, version, state, service, version, more)
}

func TestServicesAreChosen(t *testing.T) {
	doc, err := withServices(t, entry("haproxy", "3.2.23", "lts", "")+entry("haproxy", "3.10.0", "current", "")+
		entry("haproxy", "4.0.0", "deprecated", ", reason: old")+entry("haproxy", "5.0.0", "withdrawn", ", reason: bad")+
		entry("dex", "2.44.0", "withdrawn", ", reason: bad"))
	require.NoError(t, err)
	for _, c := range []struct {
		service matrix.Driver
		held    string // "": all
		want    string
	}{
		{matrix.HAProxy, "", "haproxy@3.10.0"},
		{matrix.HAProxy, "haproxy@3.2.23 haproxy@4.0.0 haproxy@5.0.0", "haproxy@3.2.23"},
		{matrix.HAProxy, "haproxy@4.0.0 haproxy@5.0.0", "haproxy@4.0.0"},
		{matrix.HAProxy, "haproxy@5.0.0", ""},
		{matrix.HAProxy, "haproxy@9.9.9", ""},
		{matrix.Dex, "", ""},
	} {
		var held matrix.Available
		if c.held != "" {
			held = matrix.Available{}
			for _, id := range strings.Fields(c.held) {
				held[id] = true
			}
		}
		got, err := doc.ChooseService(c.service, held)
		if c.want == "" {
			require.ErrorIs(t, err, matrix.ErrNoService, "%v", c)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.Equal(t, c.want, got.ReleaseID.String(), "%v", c)
	}
}

func TestServicesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ services, want string }{
		"unknown":       {entry("nginx", "1.0.0", "current", ""), `services[0].service`},
		"a driver":      {entry("csi", "3.5.1", "current", ""), `services[0].service`},
		"a word":        {entry("haproxy", "newest", "current", ""), `services[0].version`},
		"twice":         {entry("haproxy", "3.2.0", "current", "") + entry("haproxy", "3.2.0", "lts", ""), "haproxy@3.2.0 is listed twice"},
		"no reason":     {entry("haproxy", "3.2.0", "withdrawn", ""), "a release is not withdrawn without one"},
		"unknown state": {entry("haproxy", "3.2.0", "new", ""), "services[0].state"},
		"unknown key":   {entry("haproxy", "3.2.0", "current", ", tag: x"), "tag"},
		"no image":      {"  - {service: haproxy, version: 3.2.0, state: current, basis: test}\n", "services[0].image"},
		"no tag":        {"  - {service: haproxy, version: 3.2.0, state: current, basis: test, image: registry.test/haproxy}\n", "services[0].image"},
		"latest":        {"  - {service: haproxy, version: 3.2.0, state: current, basis: test, image: 'registry.test/ha proxy:1'}\n", "services[0].image"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := withServices(t, c.services)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "m.yaml:")
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

func TestTheDefaultMatrixHasEveryService(t *testing.T) {
	doc := must.Have(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
	for _, s := range matrix.Services() {
		got, err := doc.ChooseService(s, nil)
		require.NoError(t, err, s)
		require.Contains(t, got.Image, got.Version.String())
	}
}
