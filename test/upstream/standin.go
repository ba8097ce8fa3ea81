package upstream

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

//go:embed standin
var standIns embed.FS

// Releases returns the releases, one or more of each line, whose stand-ins are compared with the real files, such as
// "csi@3.5.1".
func Releases() []string { return slices.Clone(releases) }

var releases = []string{
	"cni@2.5.0", "cni@2.7.0",
	"cpi@1.27.0", "cpi@1.30.2", "cpi@1.31.1", "cpi@1.33.1", "cpi@1.34.0", "cpi@1.36.0",
	"csi@2.7.3", "csi@3.0.3", "csi@3.1.2", "csi@3.3.1", "csi@3.5.1", "csi@3.7.3",
	"snapshot-controller@6.0.1", "snapshot-controller@6.2.1", "snapshot-controller@6.2.2",
	"snapshot-controller@7.0.2", "snapshot-controller@8.2.0",
}

// crd has the data of a CRD's stand-in.
type crd struct {
	Group, Plural, Kind, Singular, Scope string
	Status                               bool
}

// crdFile matches the files with one CRD each.
var crdFile = regexp.MustCompile(`^((?:group)?snapshot\.storage\.k8s\.io)_(volume\w+)\.yaml$`)

var crdKinds = map[string]crd{
	"volumesnapshotclasses":       {Kind: "VolumeSnapshotClass", Scope: "Cluster"},
	"volumesnapshotcontents":      {Kind: "VolumeSnapshotContent", Scope: "Cluster", Status: true},
	"volumesnapshots":             {Kind: "VolumeSnapshot", Scope: "Namespaced", Status: true},
	"volumegroupsnapshotclasses":  {Kind: "VolumeGroupSnapshotClass", Scope: "Cluster"},
	"volumegroupsnapshotcontents": {Kind: "VolumeGroupSnapshotContent", Scope: "Cluster", Status: true},
	"volumegroupsnapshots":        {Kind: "VolumeGroupSnapshot", Scope: "Namespaced", Status: true},
}

// Files returns the names of a release's manifests, as upstream names them.
func Files(id matrix.ReleaseID) []string {
	switch id.Driver {
	case matrix.CNI:
		return []string{"antrea.yml"}
	case matrix.CPI:
		return []string{"vsphere-cloud-controller-manager.yaml"}
	case matrix.CSI:
		return []string{
			"csi-snapshot-validatingwebhook.yaml", "namespace.yaml", "validatingwebhook.yaml", "vsphere-csi-driver.yaml",
		}
	case matrix.SnapshotController:
		names := []string{"rbac-snapshot-controller.yaml", "setup-snapshot-controller.yaml"}
		for plural := range crdKinds {
			group := "snapshot.storage.k8s.io"
			if strings.HasPrefix(plural, "volumegroup") {
				if id.Version.Minor().Major < 7 {
					continue
				}
				group = "group" + group
			}
			names = append(names, group+"_"+plural+".yaml")
		}
		slices.Sort(names)
		return names
	}
	return nil
}

// standIn returns the project's own text for one of a release's [Files], for its version.
func standIn(id matrix.ReleaseID, name string) ([]byte, error) {
	if !slices.Contains(Files(id), name) {
		return nil, fmt.Errorf("stand-in %s of %s: %w", name, id, fs.ErrNotExist)
	}
	values := struct {
		Version string
		CRD     crd
	}{Version: id.Version.String()}
	file := name
	switch parts := crdFile.FindStringSubmatch(name); {
	case parts != nil:
		file = "crd.yaml"
		values.CRD = crdKinds[parts[2]]
		values.CRD.Group, values.CRD.Plural, values.CRD.Singular = parts[1], parts[2], strings.ToLower(values.CRD.Kind)
	case id.Driver == matrix.CPI:
		file = "cpi.yaml"
	}
	from := func(line string) (bool, error) {
		if strings.Count(line, ".") == 1 {
			line += ".0"
		}
		v, err := matrix.ParseVersion(line)
		return !id.Version.LessThan(v), err
	}
	t, err := template.New(file).Funcs(template.FuncMap{
		"from": from,
		// since returns value, or the one after the last of lines that the version has reached.
		"since": func(value string, lines ...string) (string, error) {
			for pair := range slices.Chunk(lines, 2) {
				if reached, err := from(pair[0]); err != nil {
					return "", err
				} else if reached {
					value = pair[1]
				}
			}
			return value, nil
		},
		"list": func(rows ...string) (out [][]string) {
			for _, row := range rows {
				out = append(out, strings.Fields(row))
			}
			return out
		},
		"lower": strings.ToLower,
	}).ParseFS(standIns, "standin/parts.yaml", "standin/"+file)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, values)
	return out.Bytes(), err
}
