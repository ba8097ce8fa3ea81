package matrix_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

func defaultDocument(t testing.TB) *matrix.Document {
	return must.Have(matrix.Parse("default.yaml", matrix.Default()))(t)
}

// upstreamFile is a line of RELEASES.tsv.
type upstreamFile struct {
	id     matrix.ReleaseID
	name   string
	size   int64
	sha256 string
	url    string
}

// published reads every file that upstream published.
func published(t *testing.T) []upstreamFile {
	f := must.Have(os.Open(filepath.Join(upstream.Dir(t), "RELEASES.tsv")))(t)
	defer func() { require.NoError(t, f.Close()) }()
	drivers := map[string]matrix.Driver{"antrea": matrix.CNI, "cpi": matrix.CPI, "csi": matrix.CSI, "snapshot-controller": matrix.SnapshotController}
	var out []upstreamFile
	lines := csv.NewReader(f)
	lines.Comma, lines.Comment, lines.FieldsPerRecord = '\t', '#', 6
	for _, columns := range must.Have(lines.ReadAll())(t) {
		version := must.Have(matrix.ParseVersion(columns[1]))(t)
		size := must.Have(strconv.ParseInt(columns[3], 10, 64))(t)
		require.Contains(t, drivers, columns[0])
		out = append(out, upstreamFile{matrix.ReleaseID{Driver: drivers[columns[0]], Version: version}, columns[2], size, columns[4], columns[5]})
	}
	return out
}

// promised tells whether the default document has to list a release.
func promised(t *testing.T, id matrix.ReleaseID) bool {
	minor := id.Version.Minor()
	between := func(first, last matrix.Minor) bool { return minor.Compare(first) >= 0 && minor.Compare(last) <= 0 }
	switch id.Driver {
	case matrix.CNI:
		return between(matrix.Minor{Major: 2, Minor: 5}, matrix.Minor{Major: 2, Minor: 7})
	case matrix.CPI:
		return between(matrix.Minor{Major: 1, Minor: 27}, matrix.Minor{Major: 1, Minor: 36})
	case matrix.CSI:
		return between(matrix.Minor{Major: 2, Minor: 5}, matrix.Minor{Major: 3, Minor: 7})
	case matrix.SnapshotController:
		return slices.Contains([]string{"5.0.1", "6.0.1", "6.2.1", "6.2.2", "7.0.1", "7.0.2", "8.2.0"}, id.Version.String())
	}
	t.Fatalf("driver %q", id.Driver)
	return false
}

func TestTheDefaultDocumentHoldsEveryPublishedFile(t *testing.T) {
	const notListed = "csi-snapshot-validatingwebhook.yaml" // see the head of default.yaml
	listed := map[string]matrix.Manifest{}
	for _, r := range defaultDocument(t).Releases {
		for _, m := range r.Manifests {
			listed[r.ReleaseID.String()+"/"+m.Name] = m
		}
	}
	seen := 0
	for _, want := range published(t) {
		if !promised(t, want.id) || want.name == notListed {
			continue
		}
		seen++
		key := want.id.String() + "/" + want.name
		got, ok := listed[key]
		require.True(t, ok, "%s is not listed", key)
		require.Equal(t, want.url, got.URL, key)
		require.Equal(t, want.size, got.Size, key)
		require.Equal(t, want.sha256, got.SHA256, key)
		delete(listed, key)
	}
	require.Greater(t, seen, 150)
	// Files that the list of releases does not have: their sums are in SOURCES.md.
	sources := must.Have(os.ReadFile(filepath.Join(upstream.Dir(t), "SOURCES.md")))(t)
	for key, m := range listed {
		_, file, _ := strings.Cut(key, "@")
		row := fmt.Sprintf("%d | `%s`", m.Size, m.SHA256)
		require.Contains(t, string(sources), row, "%s: no source for %s", key, file)
		require.Contains(t, m.URL, "/external-snapshotter/v8.2.0/client/config/crd/groupsnapshot.")
	}
	require.Len(t, listed, 3)
}

func TestEveryCSIReleaseQualifiesASnapshotController(t *testing.T) {
	want := map[string]string{
		"2.5": "5.0.1", "2.6": "5.0.1", "2.7": "6.0.1", "3.0": "6.2.1", "3.1": "6.2.2", "3.2": "7.0.1", "3.3": "7.0.2",
		"3.4": "8.2.0", "3.5": "8.2.0", "3.6": "8.2.0", "3.7": "8.2.0",
	}
	for _, r := range defaultDocument(t).Releases {
		if r.Driver != matrix.CSI {
			continue
		}
		i := slices.IndexFunc(r.Requires, func(n matrix.Requirement) bool { return n.Driver == matrix.SnapshotController })
		require.GreaterOrEqual(t, i, 0, r.ReleaseID.String())
		require.Equal(t, want[r.Version.Minor().String()], r.Requires[i].Version.String(), r.ReleaseID.String())
		require.False(t, r.Requires[i].Optional)
	}
}

// FACTS: which images exist in no registry any more.
func TestWithdrawnInTheDefaultDocument(t *testing.T) {
	first := must.Have(matrix.ParseVersion("3.1.2"))(t)
	for _, r := range defaultDocument(t).Releases {
		gone := (r.Driver == matrix.CSI && r.Version.LessThan(first)) || (r.Driver == matrix.CPI && r.Version.String() == "1.27.0")
		require.Equal(t, gone, r.State == matrix.Withdrawn, r.ReleaseID.String())
	}
}

// kind is what counts of a custom resource definition.
type kind struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Versions []struct {
			Name            string
			Served, Storage bool
		}
	}
}

// kinds are the custom resource definitions of a release, by name: nil where its manifests are not
// at hand.
func kinds(t *testing.T, r matrix.Release) map[string]kind {
	dir := filepath.Join(upstream.Dir(t), upstream.Folder(r.Driver), "v"+r.Version.String())
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	all := map[string]kind{}
	for _, m := range r.Manifests {
		data := must.Have(os.ReadFile(filepath.Join(dir, m.Name)))(t)
		for objects := yaml.NewDecoder(bytes.NewReader(data)); ; {
			var k kind
			err := objects.Decode(&k)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, m.Name)
			if k.Kind == "CustomResourceDefinition" {
				all[k.Metadata.Name] = k
			}
		}
	}
	return all
}

// A release that stores a kind in a version that an older one does not serve is marked: the older
// one reads nothing of what was stored. The README says why none is marked for anything else.
func TestOneWayMarksOfTheDefaultDocument(t *testing.T) {
	var marked []string
	compared := 0
	known := map[matrix.Driver][]matrix.Release{} // in order
	for _, r := range defaultDocument(t).Releases {
		if r.OneWay != "" {
			marked = append(marked, r.ReleaseID.String())
		}
		newer := kinds(t, r)
		for _, old := range known[r.Driver] {
			older := kinds(t, old)
			for name, k := range newer {
				was, exists := older[name]
				if !exists {
					continue
				}
				compared++
				read := map[string]bool{}
				for _, v := range was.Spec.Versions {
					read[v.Name] = v.Served
				}
				for _, v := range k.Spec.Versions {
					require.True(t, !v.Storage || read[v.Name] || r.OneWay != "", "%s stores %s as %s, which %s does not serve: mark it with oneWay, and say so in the README", r.ReleaseID, name, v.Name, old.ReleaseID)
				}
			}
		}
		if newer != nil {
			known[r.Driver] = append(known[r.Driver], r)
		}
	}
	require.Greater(t, compared, 40)
	require.Empty(t, marked, "the README says that there is none, and why, for each driver")
}

func TestTheDefaultDocumentIsSortedAndItsCopyIsOurs(t *testing.T) {
	data := matrix.Default()
	data[0] = 'X'
	doc := defaultDocument(t)
	first := must.Have(doc.Marshal())(t) // sorts
	again := must.Have(matrix.Parse("again", first))(t)
	require.Equal(t, doc, again)
}
