package matrix_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// legacy is a file of the former operator, indented by tabs as its tools wrote it.
const legacy = `{
	"CSI": {
		"3.3.1": {
			"vSphere": {"min": "6.7.1", "max": "8.2.0"},
			"k8s": {"min": "1.28", "max": "1.30"},
			"isCPIRequired": true,
			"deploymentPath": [
				"https://raw.githubusercontent.com/kubernetes-sigs/vsphere-csi-driver/v3.3.1/manifests/vanilla/vsphere-csi-driver.yaml",
				"https://raw.githubusercontent.com/kubernetes-sigs/vsphere-csi-driver/v3.3.1/manifests/vanilla/validatingwebhook.yaml"
			]
		}
	},
	"CPI": {
		"1.30.1": {
			"vSphere": {"min": "6.7.1", "max": "8.0.1"},
			"k8s": {"skewVersion": "1.30"},
			"deploymentPath": ["https://raw.githubusercontent.com/kubernetes/cloud-provider-vsphere/v1.30.1/releases/v1.30/vsphere-cloud-controller-manager.yaml"]
		}
	}
}`

func importOptions(t testing.TB) matrix.ImportOptions {
	issued := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	none := func(matrix.ReleaseID, string) ([]byte, string, error) { return nil, "manifests", nil }
	return matrix.ImportOptions{
		Serial: 3, Issued: issued, Expires: issued.AddDate(1, 0, 0), Known: defaultDocument(t), File: none,
	}
}

func TestImportCompletesWhatTheFormerFormatCouldNotSay(t *testing.T) {
	doc, remarks, err := matrix.ImportLegacy("compat.json", []byte(legacy), importOptions(t))
	require.NoError(t, err)
	require.EqualValues(t, 3, doc.Serial)
	require.Len(t, doc.Releases, 3)
	cpi, snapshots, csi := doc.Releases[0], doc.Releases[1], doc.Releases[2]

	require.Equal(t, "cpi@1.30.1", cpi.ReleaseID.String())
	require.Equal(t, "6.7.1 to 8.0.1", cpi.VSphere.String(), "the range is the file's")
	require.Len(t, cpi.Images, 1, "the override of the lagging tag is taken over")
	require.EqualValues(t, 6284, cpi.Manifests[0].Size)

	require.Equal(t, "snapshot-controller@7.0.2", snapshots.ReleaseID.String())
	require.Equal(t, "1.28 to 1.30", csi.Kubernetes.String())
	require.Equal(t, "imported from compat.json", csi.Kubernetes.Basis)
	require.Equal(t, matrix.PartWebhook, csi.Manifests[1].Part)
	require.Equal(t, []matrix.Requirement{{Driver: matrix.CPI}, {Driver: matrix.SnapshotController, Version: version(t, "7.0.2")}}, csi.Requires)
	require.Contains(t, strings.Join(remarks, "\n"), "csi@3.3.1 requires snapshot-controller@7.0.2")
}

func TestAnImportedMatrixResolves(t *testing.T) {
	doc, _, err := matrix.ImportLegacy("compat.json", []byte(legacy), importOptions(t))
	require.NoError(t, err)
	facts := matrix.Facts{Kubernetes: version(t, "1.30.4"), VCenters: []matrix.VCenter{{Name: "a", Version: version(t, "7.0.3")}}}
	s, refusal := matrix.Resolve(doc, facts, nil, matrix.Policy{}, nil)
	require.Nil(t, refusal)
	require.Len(t, s.Choices, 3)
	// The need of a CPI, which the former operator ignored, counts.
	_, refusal = matrix.Resolve(doc, facts, nil, matrix.Policy{Rules: map[matrix.Driver]matrix.Rule{matrix.CPI: matrix.Disabled}}, nil)
	require.NotNil(t, refusal)
	require.Equal(t, matrix.RuleRequires, refusal.Rejections[0].Rule)
}

func TestImportNamesWhatItCannotKnow(t *testing.T) {
	options := importOptions(t)
	options.Known = &matrix.Document{}
	_, _, err := matrix.ImportLegacy("compat.json", []byte(legacy), options)
	require.ErrorContains(t, err, "compat.json:8: CSI.3.3.1.deploymentPath[0]: size and sha256 of https://raw")
	require.ErrorContains(t, err, "compat.json:17: CPI.1.30.1.deploymentPath[0]: size and sha256 of")
	require.Len(t, fault.All(err), 3)

	options.File = func(id matrix.ReleaseID, name string) ([]byte, string, error) {
		return []byte(id.String() + name), "", nil
	}
	doc, remarks, err := matrix.ImportLegacy("compat.json", []byte(legacy), options)
	require.NoError(t, err)
	require.Len(t, doc.Releases, 2)
	require.Len(t, doc.Releases[0].Manifests[0].SHA256, 64)
	require.Contains(t, remarks[0], "its state is set to current")
}

func TestImportRefusesWhatIsNoFormerMatrix(t *testing.T) {
	withoutCPI, _, _ := strings.Cut(legacy, `"CPI"`)
	for name, c := range map[string]struct{ text, want string }{
		"empty":                 {"", "is not JSON"},
		"not JSON":              {"CSI: {}", "compat.json:1: is not JSON"},
		"nothing":               {"{}", "lists no release"},
		"list":                  {"[]", "is not a mapping of keys"},
		"driver of lists":       {`{"CSI":[]}`, "CSI: is not a mapping of versions"},
		"version twice":         {strings.Replace(legacy, `"CPI": {`, `"CPI": {"1.30.1": {},`, 1), "is given already in line"},
		"driver twice":          {strings.Replace(legacy, `"CPI"`, `"CSI"`, 1), "CSI: is given already"},
		"range without max":     {strings.Replace(legacy, `, "max": "1.30"`, "", 1), "k8s.max: is missing"},
		"inverted":              {strings.Replace(legacy, `"max": "1.30"`, `"max": "1.20"`, 1), "CSI.3.3.1.k8s.max: 1.20 is below min 1.28"},
		"address of nothing":    {strings.Replace(legacy, "https://raw.githubusercontent.com/kubernetes/", "file:///kubernetes/", 1), "is not an http or https address"},
		"no address":            {strings.Replace(legacy, "vsphere-cloud-controller-manager.yaml", "", 1), "size and sha256"},
		"two of one name":       {strings.Replace(legacy, "validatingwebhook.yaml", "vsphere-csi-driver.yaml", 1), "a second file named vsphere-csi-driver.yaml"},
		"large":                 {strings.Repeat(" ", matrix.MaxSize+1), "longer than 4194304 bytes"},
		"CPI that is not there": {strings.Replace(withoutCPI, "\t},\n\t", "\t}\n}", 1), "cpi is not listed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := matrix.ImportLegacy("compat.json", []byte(c.text), importOptions(t))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
		})
	}
}

// FuzzImport: no input panics, and what is imported is a valid document.
func FuzzImport(f *testing.F) {
	f.Add([]byte(legacy))
	f.Add([]byte(`{"CSI":{"1.0.0":{"k8s":{"skewVersion":1.2}}}}`))
	known := must(matrix.Parse("default.yaml", matrix.Default()))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		options := matrix.ImportOptions{
			Serial: 1, Issued: time.Unix(0, 0), Expires: time.Unix(1, 0), Known: known,
			File: func(matrix.ReleaseID, string) ([]byte, string, error) { return []byte("x"), "", nil },
		}
		doc, _, err := matrix.ImportLegacy("fuzz.json", data, options)
		if err != nil {
			require.NotEmpty(t, fault.All(err))
			return
		}
		written := must(doc.Marshal())(t)
		again := must(matrix.Parse("written.yaml", written))(t)
		require.Equal(t, doc, again)
	})
}

func TestGridShowsBothDriversOrTheOneThatFits(t *testing.T) {
	grid := matrix.NewGrid(defaultDocument(t), matrix.GridOptions{})
	var columns []string
	for _, v := range grid.VSphere {
		columns = append(columns, v.String())
	}
	require.Equal(t, []string{"6.7.3", "7.0.0", "8.0.0", "9.0.0"}, columns)
	require.Equal(t, "1.26", grid.Rows[0].Kubernetes.String())
	last := grid.Rows[len(grid.Rows)-1]
	require.Equal(t, "1.36", last.Kubernetes.String())
	for _, cell := range last.Cells {
		require.Equal(t, "1.36.0", cell.CPI.Version.String())
		require.Nil(t, cell.CSI)
	}
	data := must(json.Marshal(grid.Rows[2].Cells[1]))(t)
	require.JSONEq(t, `{"cpi":{"version":"1.28.1","state":"deprecated"},"csi":{"version":"3.3.1","state":"current","derived":true}}`, string(data))
}

func TestGridColumnsFollowTheBoundsOfTheDocument(t *testing.T) {
	doc := readReleases(t, "csi@1.0.0 current 1.30-1.31 7.0.2-8.0.1\ncpi@1.31.0 current 1.31 6.7.3-\ncsi@0.1.0 withdrawn 1.10 6.0.0-10")
	grid := matrix.NewGrid(doc, matrix.GridOptions{})
	var columns []string
	for _, v := range grid.VSphere {
		columns = append(columns, v.String())
	}
	require.Equal(t, []string{"6.7.3", "7.0.0", "7.0.2", "8.0.0", "8.0.2", "9.0.0", "10.0.0", "11.0.0"}, columns)
	require.Len(t, grid.Rows, 2)
	require.Nil(t, grid.Rows[1].Cells[1].CSI)
	require.NotNil(t, grid.Rows[1].Cells[2].CSI)
	require.NotNil(t, grid.Rows[1].Cells[3].CSI)
	require.Nil(t, grid.Rows[1].Cells[4].CSI)
	require.Empty(t, matrix.NewGrid(&matrix.Document{}, matrix.GridOptions{}).Rows)
}
