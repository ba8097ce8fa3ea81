package matrix_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// small is a valid document that uses every key.
const small = `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: 7
issued: 2026-01-01T00:00:00Z
expires: 2027-01-01T00:00:00Z
vsphereAliases:
  - reports: 6.7.0
    fromBuild: 14367737
    means: 6.7.3
    basis: build numbers
releases:
  - driver: csi
    version: 3.5.1
    state: deprecated
    reason: there is a newer one
    kubernetes:
      min: "1.31"
      max: 1.33
      basis: release page
    vsphere:
      min: 7.0.0
      max: "8.0"
      basis: code
      derived: true
    requires:
      - driver: cpi
        optional: true
      - driver: snapshot-controller
        version: 8.2.0
    manifests:
      - name: driver.yaml
        part: webhook
        url: https://example.com/driver.yaml
        size: 22841
        sha256: fd622609a34fc5d91fb701d7e5631ef2caca5c70152321b826ba3add0fd32d8c
    images:
      - from: driver:latest
        to: driver:v3.5.1
        basis: floating
    notes:
      - a note
    oneWay: it moves volumes
  - driver: cpi
    version: 1.33.1
    state: current
    kubernetes: {min: "1.33", max: "1.33", basis: doc}
    vsphere: {min: 6.7.3, basis: doc}
    manifests: [{name: cpi.yaml, url: http://example.com/cpi.yaml, size: 1, sha256: fd622609a34fc5d91fb701d7e5631ef2caca5c70152321b826ba3add0fd32d8c}]
  - driver: snapshot-controller
    version: 8.2.0
    state: current
    kubernetes: {min: "1.20", basis: doc}
    manifests: [{name: s.yaml, url: https://example.com/s.yaml, size: 1, sha256: fd622609a34fc5d91fb701d7e5631ef2caca5c70152321b826ba3add0fd32d8c}]
`

func TestParseReadsEveryKey(t *testing.T) {
	doc := must.Have(matrix.Parse("small.yaml", []byte(small)))(t)
	require.EqualValues(t, 7, doc.Serial)
	require.Equal(t, "2026-01-01", doc.Issued.Format("2006-01-02"))
	require.Len(t, doc.Releases, 3)
	require.Equal(t, "cpi@1.33.1", doc.Releases[0].ReleaseID.String())
	csi := doc.Releases[2]
	require.Equal(t, matrix.Deprecated, csi.State)
	require.Equal(t, "1.31 to 1.33", csi.Kubernetes.String())
	require.Equal(t, "7.0.0 to 8.0", csi.VSphere.String())
	require.True(t, csi.VSphere.Derived)
	require.False(t, csi.Kubernetes.Derived)
	require.True(t, csi.Requires[0].Optional)
	require.Equal(t, "snapshot-controller@8.2.0", csi.Requires[1].String())
	require.Equal(t, matrix.PartWebhook, csi.Manifests[0].Part)
	require.Equal(t, []string{"a note"}, csi.Notes)
	require.Equal(t, "it moves volumes", csi.OneWay)
	require.EqualValues(t, 14367737, doc.Aliases[0].FromBuild)
}

func TestParseNamesFileLineAndKey(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown nested key", "      basis: release page", "      bases: release page", "m.yaml:19: releases[0].kubernetes.bases: there is no such key here"},
		{"nested key given twice", "    state: deprecated", "    state: deprecated\n    state: current", "m.yaml:15: releases[0].state: the key is there twice"},
		{"release listed twice", "  - driver: snapshot-controller\n    version: 8.2.0", "  - driver: cpi\n    version: 1.33.1", "cpi@1.33.1 is listed twice"},
		{"inverted Kubernetes range", "max: 1.33", "max: 1.30", "m.yaml:18: releases[0].kubernetes.max: 1.30 is below min 1.31"},
		{"inverted vSphere range", `max: "8.0"`, `max: "6.7"`, "m.yaml:22: releases[0].vsphere.max: 6.7 is below min 7.0.0"},
		{"endless range", "max: 1.33", "max: 1.9999", "is more than 100 minors above min"},
		{"bad semver", "version: 3.5.1", "version: 3.5", `m.yaml:13: releases[0].version: "3.5" is not a semantic version`},
		{"leading v", "version: 3.5.1", "version: v3.5.1", ""},
		{"build metadata", "version: 3.5.1", "version: 3.5.1+x", "has build metadata"},
		{"missing sha256", "        sha256: fd62", "        # sha256: fd62", "m.yaml:31: releases[0].manifests[0].sha256: is missing"},
		{"short sha256", "        sha256: fd622609", "        sha256: fd6226", "m.yaml:35: releases[0].manifests[0].sha256: "},
		{"upper-case sha256", "        sha256: fd62", "        sha256: FD62", "64 hexadecimal digits in lower case"},
		{"missing manifests", "manifests: [{name: s", "notes: [{name: s", "releases[2].manifests: is missing"},
		{"empty manifests", "    manifests: [{name: s.yaml, url: https://example.com/s.yaml, size: 1, sha256: fd622609a34fc5d91fb701d7e5631ef2caca5c70152321b826ba3add0fd32d8c}]", "    manifests: []", "manifests: there is none"},
		{"bad URL", "url: https://example.com/driver.yaml", "url: ftp://example.com/driver.yaml", "is not an http or https address"},
		{"URL with credentials", "url: https://example.com/driver.yaml", "url: https://me:secret@example.com/driver.yaml", "is not an http or https address"},
		{"size of zero", "size: 22841", "size: 0", "size: 0 is not a whole number from 1"},
		{"size of another base", "size: 22841", "size: 0x10", `"0x10" is not a whole number`},
		{"file name with a path", "name: driver.yaml", "name: ../driver.yaml", "is not a base name of a file"},
		{"unknown part", "part: webhook", "part: rest", `"rest" is not webhook`},
		{"unknown driver", "driver: csi", "driver: csii", `"csii" is not a driver: it is one of cni, cpi, snapshot-controller, csi`},
		{"unknown state", "state: deprecated", "state: old", `"old" is not a state: it is one of current, lts, deprecated, withdrawn`},
		{"deprecated without a reason", "    reason: there is a newer one\n", "", "releases[0].reason: is missing, and a release is not deprecated without one"},
		{"empty reason", "reason: there is a newer one", "reason:", "releases[0].reason: is empty"},
		{"expires before issued", "expires: 2027", "expires: 2025", "m.yaml:5: expires: is not after issued"},
		{"date without a time", "expires: 2027-01-01T00:00:00Z", "expires: 2027-01-01", `m.yaml:5: expires: "2027-01-01" is not a time: write 2026-01-01T00:00:00Z`},
		{"local time", "issued: 2026-01-01T00:00:00Z", "issued: 2026-01-01T00:00:00+01:00", ""},
		{"requirement that is not listed", "        version: 8.2.0", "        version: 8.1.0", "m.yaml:28: releases[0].requires[1]: snapshot-controller@8.1.0 is not listed"},
		{"requirement of a network", "- driver: cpi\n        optional", "- driver: cni\n        optional", "csi requires cpi and snapshot-controller alone"},
		{"required twice", "driver: snapshot-controller\n        version: 8.2.0", "driver: cpi", "cpi is listed twice"},
		{"requirement of a cpi", "    vsphere: {min: 6.7.3, basis: doc}", "    vsphere: {min: 6.7.3, basis: doc}\n    requires: [{driver: csi}]", "only csi does"},
		{"cpi of another minor", `{min: "1.33", max: "1.33", basis: doc}`, `{min: "1.32", max: "1.33", basis: doc}`, "a cpi serves the Kubernetes minor of its own version alone"},
		{"csi without an upper bound", "      max: 1.33\n", "", "releases[0].kubernetes.max: is missing"},
		{"csi without vSphere", "    vsphere:\n      min: 7.0.0\n      max: \"8.0\"\n      basis: code\n      derived: true\n", "", "releases[0].vsphere: is missing"},
		{"range without a basis", "      basis: code\n", "", "releases[0].vsphere.basis: is missing"},
		{"neither true nor false", "derived: true", "derived: yes", `"yes" is neither true nor false`},
		{"override without a tag", "to: driver:v3.5.1", "to: driver", "neither a fixed tag nor a digest"},
		{"override to a floating tag", "to: driver:v3.5.1", "to: host:5000/driver:latest", "neither a fixed tag nor a digest"},
		{"alias twice", "releases:", "  - {reports: 6.7.0, fromBuild: 14367737, means: 6.7.3, basis: b}\nreleases:", "vsphereAliases[1].reports: 6.7.0 from build 14367737 is listed twice"},
		{"other version of the format", "matrix/v1", "matrix/v2", `m.yaml:1: apiVersion: "vdo.vmware.com/matrix/v2" is not vdo.vmware.com/matrix/v1`},
		{"other kind", "kind: CompatibilityMatrix", "kind: Matrix", `m.yaml:2: kind: "Matrix" is not CompatibilityMatrix`},
		{"serial of zero", "serial: 7", "serial: 0", "m.yaml:3: serial:"},
		{"serial beyond what JSON can carry", "serial: 7", "serial: 9223372036854775807", "m.yaml:3: serial:"},
		{"a list where a mapping belongs", `    kubernetes: {min: "1.20", basis: doc}`, "    kubernetes: [1.20]", "kubernetes: is not a mapping of keys"},
		{"a mapping where a value belongs", "serial: 7", "serial: {a: 1}", "m.yaml:3: serial: is not a single value"},
		{"text of several lines", "reason: there is a newer one", "reason: |\n      one\n      two", "is more than one line"},
		{"alias", "basis: release page", "basis: &a page\n      derived: *a", "derived: is not a single value"},
		{"binary", "basis: code", "basis: !!binary Y29kZQ==", "basis: is not a single value"},
		{"a marker before the document is not a second one", "apiVersion", "---\napiVersion", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(small, c.old), c.old)
			text := strings.Replace(small, c.old, c.new, 1)
			_, err := matrix.Parse("m.yaml", []byte(text))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			for _, f := range fault.All(err) {
				require.Equal(t, fault.InvalidInput, f.Reason)
				require.NotEmpty(t, f.Hint, f.Error())
				require.Contains(t, f.Subject, "m.yaml")
			}
		})
	}
}

func TestParseRefusesWhatIsNoDocument(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"null":            {"~", "is not a mapping"},
		"text":            {"hello", "m.yaml:1: is not a mapping of keys"},
		"not UTF-8":       {"\xff\xfe\xfd", "m.yaml"},
		"second document": {small + "---\nkind: x\n", "a second YAML document begins here"},
		"broken second":   {small + "---\n[", "m.yaml"},
		"alias bomb":      {bomb, "a: there is no such key here"},
		"deep":            {strings.Repeat("[", 500), "m.yaml"},
		"deep and closed": {strings.Repeat("[", 500) + strings.Repeat("]", 500), "is not a mapping of keys"},
		"many releases":   {"releases:\n" + strings.Repeat("  - 1\n", 20001), "releases: has 20001 elements, more than 20000"},
		"large":           {strings.Repeat("#", matrix.MaxSize+1), "longer than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := matrix.Parse("m.yaml", []byte(c.text))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.Less(t, len(err.Error()), 64<<10)
		})
	}
}

func TestParseReportsAllProblemsInTheOrderOfLines(t *testing.T) {
	text := strings.NewReplacer("serial: 7", "serial: x", "version: 1.33.1", "version: x", "size: 22841", "size: x").Replace(small)
	_, err := matrix.Parse("m.yaml", []byte(text))
	require.ErrorContains(t, err, "m.yaml:3: ")
	all := fault.All(err)
	require.GreaterOrEqual(t, len(all), 3)
	require.Less(t, strings.Index(err.Error(), "m.yaml:3:"), strings.Index(err.Error(), "m.yaml:34:"))
	require.Less(t, strings.Index(err.Error(), "m.yaml:34:"), strings.Index(err.Error(), "m.yaml:44:"))
}

func TestParseBoundsWhatItSays(t *testing.T) {
	text := "releases:\n" + strings.Repeat("  - 1\n", 5000)
	_, err := matrix.Parse("m.yaml", []byte(text))
	require.ErrorContains(t, err, "more problems are not listed")
	require.Len(t, fault.All(err), 51)
}

func TestMarshalIsCanonical(t *testing.T) {
	doc := must.Have(matrix.Parse("small.yaml", []byte(small)))(t)
	first := must.Have(doc.Marshal())(t)
	slices.Reverse(doc.Releases)
	reversed := must.Have(doc.Marshal())(t)
	require.Equal(t, string(first), string(reversed))
	require.True(t, bytes.Contains(first, []byte("issued: 2026-01-01T00:00:00Z\n")))
}

// FuzzParse: no input panics, and what parses is written so that it parses to the
// same document and the same bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	for _, s := range []string{strings.SplitAfter(small, "  - driver: cpi")[0], "", "a: &a [*a]", "{", "releases: [{driver: csi, version: 1.0.0}]", "? {a: b}\n: c", "<<: {}", "a: !!binary x", "\t"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := matrix.Parse("fuzz.yaml", data)
		if err != nil {
			require.NotEmpty(t, fault.All(err))
			return
		}
		written := must.Have(doc.Marshal())(t)
		again, err := matrix.Parse("written.yaml", written)
		require.NoError(t, err, "%s", written)
		require.Equal(t, doc, again)
		twice := must.Have(again.Marshal())(t)
		require.Equal(t, string(written), string(twice))
	})
}

func TestTheSpecificationIsAValidDocument(t *testing.T) {
	source := must.Have(os.ReadFile("matrix.go"))(t)
	var example []string
	for _, line := range strings.Split(string(source), "\n") {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			example = append(example, text)
		}
	}
	text := strings.NewReplacer(
		"sha256: 64 lower-case hexadecimal digits", "sha256: "+strings.Repeat("a", 64),
		"from: the reference as the manifest writes it", "from: a:latest", "to: the reference to use", "to: a:v1",
		"state: current  ", "state: lts  ",
	).Replace(strings.Join(example, "\n"))
	// What the example requires has to be listed too.
	_, err := matrix.Parse("matrix.go", []byte(text))
	require.ErrorContains(t, err, "releases[0].requires[0]: cpi is not listed")
	require.ErrorContains(t, err, "releases[0].requires[1]: snapshot-controller@8.2.0 is not listed")
	require.Len(t, fault.All(err), 2)
}
