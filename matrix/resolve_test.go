package matrix_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
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
			got := answer(readCase(t, archive))
			if *update {
				archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
				archive.Files = append(archive.Files, txtar.File{Name: "want", Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o600))
				return
			}
			require.Equal(t, section(archive, "want"), got)
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
	t.Helper()
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
	t.Helper()
	out := map[matrix.Driver]matrix.Version{}
	for _, w := range words {
		id := must.Have(matrix.ParseReleaseID(w))(t)
		out[id.Driver] = id.Version
	}
	return out
}

// readReleases reads the short form of a matrix that README.md describes.
func readReleases(t *testing.T, text string) *matrix.Document {
	t.Helper()
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
	t.Helper()
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

// random makes a question: a small matrix and a site near its bounds, so that
// selections and refusals both occur often.
func random(t testing.TB, rnd *rand.Rand) ask {
	a := ask{doc: &matrix.Document{}, policy: matrix.Policy{Rules: map[matrix.Driver]matrix.Rule{}}}
	minor := func() matrix.Minor { return matrix.Minor{Major: 1, Minor: 30 + rnd.Uint64N(4)} }
	sphere := func() matrix.Version {
		return version(t, fmt.Sprintf("%d.%d.%d", 6+rnd.IntN(4), rnd.IntN(2)*7%8, rnd.IntN(4)))
	}
	states := matrix.States()
	for _, d := range matrix.Drivers() {
		for n := range 1 + rnd.IntN(6) {
			r := matrix.Release{State: states[rnd.IntN(len(states))], Reason: "r"}
			at := minor()
			r.ReleaseID = matrix.ReleaseID{Driver: d, Version: version(t, fmt.Sprintf("%s.%d%s", at, n, []string{"", "", "", "-rc.1"}[rnd.IntN(4)]))}
			r.Kubernetes = matrix.KubernetesRange{Min: at, Max: at, Derived: rnd.IntN(4) == 0}
			if d != matrix.CPI {
				r.Kubernetes.Max.Minor += rnd.Uint64N(3)
			}
			if rnd.IntN(4) > 0 {
				r.VSphere.Min = version(t, "6.7.3")
			}
			if rnd.IntN(3) == 0 {
				ceiling := must.Have(matrix.ParseCeiling([]string{"7", "8.0", "8.0.1", "9"}[rnd.IntN(4)]))(t)
				r.VSphere.Max = ceiling
			}
			a.doc.Releases = append(a.doc.Releases, r)
		}
	}
	a.doc.Releases = slices.DeleteFunc(a.doc.Releases, func(matrix.Release) bool { return rnd.IntN(20) == 0 })
	for i, r := range a.doc.Releases {
		if r.Driver != matrix.CSI {
			continue
		}
		for _, d := range []matrix.Driver{matrix.CPI, matrix.SnapshotController} {
			need := matrix.Requirement{Driver: d, Optional: rnd.IntN(2) == 0}
			if v := pickVersion(rnd, a.doc, d); rnd.IntN(2) == 0 {
				need.Version = v
			}
			if rnd.IntN(3) > 0 {
				a.doc.Releases[i].Requires = append(a.doc.Releases[i].Requires, need)
			}
		}
	}
	if rnd.IntN(30) > 0 {
		m := minor()
		a.facts.Kubernetes = version(t, fmt.Sprintf("%s.%d", m, rnd.IntN(9)))
	}
	for n := range rnd.IntN(4) {
		a.facts.VCenters = append(a.facts.VCenters, matrix.VCenter{Name: strconv.Itoa(n), Version: sphere(), Build: rnd.Uint64N(3)})
	}
	a.doc.Aliases = []matrix.VSphereAlias{
		{Reports: version(t, "6.7.0"), FromBuild: 2, Means: version(t, "6.7.3")},
		{Reports: version(t, "6.7.0"), FromBuild: 1, Means: version(t, "6.7.1")},
	}
	a.facts.Distribution = []string{"", "", "OpenShift"}[rnd.IntN(3)]
	a.facts.Installed, a.pins = map[matrix.Driver]matrix.Version{}, matrix.Pins{}
	for _, d := range matrix.Drivers() {
		if rnd.IntN(3) == 0 {
			a.facts.Installed[d] = pickVersion(rnd, a.doc, d)
		}
		if rnd.IntN(6) == 0 {
			a.pins[d] = pickVersion(rnd, a.doc, d)
		}
		if rnd.IntN(3) == 0 {
			a.policy.Rules[d] = []matrix.Rule{matrix.Latest, matrix.PreferLT, matrix.Disabled, "nonsense"}[rnd.IntN(4)]
		}
	}
	if rnd.IntN(3) == 0 {
		a.available = matrix.Available{}
		for _, r := range a.doc.Releases {
			a.available[r.ReleaseID.String()] = rnd.IntN(3) > 0
		}
	}
	return a
}

func pickVersion(rnd *rand.Rand, doc *matrix.Document, d matrix.Driver) matrix.Version {
	var all []matrix.Version
	for _, r := range doc.Releases {
		if r.Driver == d {
			all = append(all, r.Version)
		}
	}
	if len(all) == 0 || rnd.IntN(10) == 0 {
		return matrix.Version{}
	}
	return all[rnd.IntN(len(all))]
}

// effective says which version counts for a vCenter, by the aliases of random.
func effective(t testing.TB, v matrix.VCenter) matrix.Version {
	if v.Version.String() != "6.7.0" {
		return v.Version
	}
	return version(t, map[uint64]string{0: "6.7.1", 1: "6.7.1", 2: "6.7.3"}[v.Build])
}

func TestWhatIsChosenFitsAndIsNeverWithdrawn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	chosen, refused := 0, 0
	for i := range 3000 {
		a := random(t, rnd)
		s, refusal := a.resolve()
		if refusal != nil {
			refused++
			require.Empty(t, s.Choices)
			checkRefusal(t, a, refusal)
			continue
		}
		chosen++
		for _, c := range s.Choices {
			r, what := c.Release, fmt.Sprintf("question %d: %s", i, c.Release.ReleaseID)
			require.NotEqual(t, matrix.Withdrawn, r.State, what)
			require.True(t, r.Kubernetes.Contains(a.facts.Kubernetes.Minor()), what)
			for _, v := range a.facts.VCenters {
				require.True(t, r.VSphere.Contains(effective(t, v)), what)
			}
			if r.Driver == matrix.CPI {
				require.Equal(t, a.facts.Kubernetes.Minor(), r.Version.Minor(), what)
			}
			if pin := a.pins[r.Driver]; !pin.IsZero() {
				require.True(t, pin.Equal(r.Version), what)
			} else {
				require.False(t, r.Version.IsPrerelease(), what)
			}
			require.True(t, a.available == nil || a.available[r.ReleaseID.String()], what)
			require.NotEqual(t, matrix.Disabled, a.policy.Rules[r.Driver], what)
			require.NotEmpty(t, c.Reasons, what)
		}
		checkRequirements(t, a, s)
		for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
			_, ok := s.Choice(d)
			require.Equal(t, a.policy.Rules[d] != matrix.Disabled, ok, "question %d: %s", i, d)
		}
	}
	require.Greater(t, chosen, 150)
	require.Greater(t, refused, 500)
}

func checkRequirements(t *testing.T, a ask, s matrix.Selection) {
	t.Helper()
	csi, ok := s.Choice(matrix.CSI)
	if !ok {
		return
	}
	own := a.facts.Distribution != "" || a.policy.Rules[matrix.SnapshotController] == matrix.Disabled
	for _, need := range csi.Release.Requires {
		if need.Optional || (need.Driver == matrix.SnapshotController && own) {
			continue
		}
		got, ok := s.Choice(need.Driver)
		require.True(t, ok, need.String())
		require.True(t, need.Version.IsZero() || need.Version.Equal(got.Release.Version), need.String())
	}
}

func checkRefusal(t *testing.T, a ask, refusal *matrix.Refusal) {
	t.Helper()
	require.NotEmpty(t, refusal.Drivers)
	named := map[string]bool{}
	for _, no := range refusal.Rejections {
		require.NotEmpty(t, no.Rule)
		require.NotEmpty(t, no.Detail)
		named[no.Release.String()] = true
	}
	for _, r := range a.doc.Releases {
		if slices.Contains(refusal.Drivers, r.Driver) {
			require.True(t, named[r.ReleaseID.String()], "%s is not named: %s", r.ReleaseID, refusal)
		}
	}
	f := refusal.Fault()
	require.Equal(t, fault.Incompatible, f.Reason)
	require.NotEmpty(t, f.Hint)
	require.NotContains(t, refusal.Error(), "\n")
	var back *matrix.Refusal
	require.True(t, errors.As(f, &back))
}

func TestTheOrderOfReleasesDoesNotMatter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // repeatable
	for range 1000 {
		a := random(t, rnd)
		want := answer(a)
		shuffled := *a.doc
		shuffled.Releases = slices.Clone(a.doc.Releases)
		shuffled.Aliases = slices.Clone(a.doc.Aliases)
		rnd.Shuffle(len(shuffled.Releases), func(i, j int) {
			shuffled.Releases[i], shuffled.Releases[j] = shuffled.Releases[j], shuffled.Releases[i]
		})
		slices.Reverse(shuffled.Aliases)
		a.doc = &shuffled
		require.Equal(t, want, answer(a))
	}
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
		"unknown vCenter":   {doc: defaultDocument(t), facts: matrix.Facts{Kubernetes: version(t, "1.33.0"), VCenters: []matrix.VCenter{{}}}},
		"bundle of nothing": {doc: defaultDocument(t), facts: matrix.Facts{Kubernetes: version(t, "1.33.0")}, available: matrix.Available{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, refusal := a.resolve()
			require.NotNil(t, refusal)
			require.Empty(t, s.Choices)
			require.NotEmpty(t, refusal.Error())
			require.NotEmpty(t, refusal.Fault().Hint)
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

// Facts are never changed: the caller goes on with them.
func TestResolveChangesNothingOfItsQuestion(t *testing.T) {
	doc := defaultDocument(t)
	slices.Reverse(doc.Releases)
	before := slices.Clone(doc.Releases)
	facts := matrix.Facts{Kubernetes: version(t, "1.33.0"), Installed: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.0.0")}}
	installed := maps.Clone(facts.Installed)
	_, refusal := matrix.Resolve(doc, facts, nil, matrix.Policy{}, nil)
	require.Nil(t, refusal)
	require.Equal(t, before, doc.Releases)
	require.Equal(t, installed, facts.Installed)
}
