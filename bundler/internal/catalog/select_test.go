package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func document(t *testing.T) *matrix.Document {
	return must.Have(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
}

func ids(s catalog.Selection) string {
	var out []string
	for _, r := range s.Releases {
		out = append(out, r.ReleaseID.String())
	}
	return strings.Join(out, " ")
}

func request(t *testing.T, drivers, k8s, vSphere, releases string) catalog.Request {
	t.Helper()
	return catalog.Request{
		Drivers: parsed(t, drivers, matrix.ParseDriver), Kubernetes: parsed(t, k8s, matrix.ParseMinor),
		VSphere: parsed(t, vSphere, matrix.ParseVSphere), Releases: parsed(t, releases, matrix.ParseReleaseID),
	}
}

func parsed[T any](t *testing.T, text string, parse func(string) (T, error)) (out []T) {
	for _, s := range strings.Fields(text) {
		v := must.Have(parse(s))(t)
		out = append(out, v)
	}
	return out
}

func TestSelect(t *testing.T) {
	for name, c := range map[string]struct {
		drivers, k8s, releases string
		want, picks            string
	}{
		"nothing asked for": {
			want: "cpi@1.33.1 cpi@1.34.0 cpi@1.35.1 snapshot-controller@8.2.0 csi@3.7.3",
			picks: "Kubernetes 1.35: cpi@1.35.1, snapshot-controller@8.2.0, csi@3.7.3\n" +
				"Kubernetes 1.34: cpi@1.34.0, snapshot-controller@8.2.0, csi@3.7.3\n" +
				"Kubernetes 1.33: cpi@1.33.1, snapshot-controller@8.2.0, csi@3.7.3",
		},
		"minors":            {k8s: "1.32 1.34 1.32", want: "cpi@1.32.3 cpi@1.34.0 snapshot-controller@8.2.0 csi@3.5.1 csi@3.7.3", picks: "Kubernetes 1.34: cpi@1.34.0, snapshot-controller@8.2.0, csi@3.7.3\nKubernetes 1.32: cpi@1.32.3, snapshot-controller@8.2.0, csi@3.5.1"},
		"one driver":        {drivers: "cpi", k8s: "1.36", want: "cpi@1.36.0", picks: "Kubernetes 1.36: cpi@1.36.0"},
		"without snapshots": {drivers: "cpi csi", k8s: "1.33", want: "cpi@1.33.1 csi@3.7.3", picks: "Kubernetes 1.33: cpi@1.33.1, csi@3.7.3"},
		"explicit":          {releases: "csi@3.5.1", want: "snapshot-controller@8.2.0 csi@3.5.1"},
		"explicit alone":    {drivers: "csi", releases: "csi@3.5.1", want: "csi@3.5.1"},
		"explicit besides":  {drivers: "cpi", k8s: "1.33", releases: "csi@3.5.1", want: "cpi@1.33.1 csi@3.5.1", picks: "Kubernetes 1.33: cpi@1.33.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := must.Have(catalog.Select(document(t), request(t, c.drivers, c.k8s, "", c.releases)))(t)
			require.Equal(t, c.want, ids(s))
			require.Equal(t, c.picks, strings.Join(s.Picks, "\n"))
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		k8s, vSphere, releases string
		reason                 fault.Reason
		want, hint             string
	}{
		"a minor that nothing covers": {k8s: "1.99", reason: fault.Incompatible, want: "select drivers for Kubernetes 1.99: ", hint: " for Kubernetes 1.99, or a Kubernetes that "},
		"an old vSphere":              {k8s: "1.33", vSphere: "6.5.0", reason: fault.Incompatible, want: "select drivers for Kubernetes 1.33: ", hint: "upgrade every vCenter into the range of csi@"},
		"an unknown release":          {releases: "csi@9.9.9", reason: fault.NotFound, want: "select release csi@9.9.9: the matrix of serial ", hint: "the matrix lists csi@2."},
		"another build of a release":  {releases: "csi@3.5.1+x", reason: fault.NotFound, want: "select release csi@3.5.1+x: ", hint: "the matrix lists csi@2."},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := catalog.Select(document(t), request(t, "", c.k8s, c.vSphere, c.releases))
			must.Fail(t, err, c.reason, c.want, c.hint)
		})
	}
}

func TestSelectReportsEveryRefusal(t *testing.T) {
	_, none := catalog.Select(&matrix.Document{}, catalog.Request{File: "my matrix.yaml"})
	require.Equal(t, "see `vdo-bundle matrix show --matrix 'my matrix.yaml'` for what the matrix covers", fault.HintOf(none))
	_, err := catalog.Select(document(t), request(t, "", "1.98 1.99", "", "csi@9.9.9"))
	for _, want := range []string{"Kubernetes 1.98", "Kubernetes 1.99", "csi@9.9.9"} {
		require.ErrorContains(t, err, want)
	}
}

func TestWithdrawnReleaseIsTakenOnlyByNameAndSaidSo(t *testing.T) {
	doc := document(t)
	s := must.Have(catalog.Select(doc, request(t, "csi", "1.33 1.34", "", "cpi@1.32.3 cpi@1.34.0")))(t)
	require.Contains(t, s.Warnings, "cpi@1.32.3 does not fit the given Kubernetes: it needs 1.32")
	require.NotContains(t, strings.Join(s.Warnings, "\n"), "cpi@1.34.0 does not fit")
	required := slices.IndexFunc(doc.Releases, func(r matrix.Release) bool { return r.String() == "snapshot-controller@8.2.0" })
	doc.Releases[required].State = matrix.Withdrawn
	r := request(t, "", "", "6.0.0", "csi@3.5.1")
	s = must.Have(catalog.Select(doc, r))(t)
	require.Equal(t, []string{"csi@3.5.1 does not fit vSphere 6.0.0: it needs 7.0.0 and later",
		"snapshot-controller@8.2.0 is withdrawn: "}, s.Warnings)
}

// The operator installs nothing that no matrix lists, so what would only be refused is
// not chosen for anybody who did not name it.
func TestReleasesWithoutAListOfNeedsAreTakenOnlyByName(t *testing.T) {
	doc := document(t)
	s := must.Have(catalog.Select(doc, request(t, "csi", "1.32", "", "")))(t)
	require.Equal(t, "csi@3.5.1", ids(s))

	s = must.Have(catalog.Select(doc, request(t, "csi", "", "", "csi@3.6.3")))(t)
	require.Equal(t, "csi@3.6.3", ids(s))
	require.Contains(t, strings.Join(s.Warnings, "\n"), "csi@3.6.3: the matrix does not list what it needs of a cluster, so the operator will refuse it")

	// Where none that fits is listed the refusal says so; by default such a Kubernetes
	// version is left out, and reported.
	doc.Needs = slices.DeleteFunc(doc.Needs, func(n matrix.Need) bool { return n.Of[0].Driver == matrix.CSI })
	err := must.Err(catalog.Select(doc, request(t, "", "1.34", "", "")))
	must.Fail(t, err, fault.Incompatible, "the matrix does not list what it needs of a cluster")

	// A matrix from before there were lists chooses as it always did.
	doc.Needs = nil
	s = must.Have(catalog.Select(doc, request(t, "csi", "1.32", "", "")))(t)
	require.Equal(t, "csi@3.6.3", ids(s))
	require.NotContains(t, strings.Join(s.Warnings, "\n"), "list")
}
