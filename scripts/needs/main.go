// Needs writes matrix/default-needs.yaml: the needs of each release of the default matrix, from upstream's manifests.
//
//	go run ./scripts/needs -upstream FOLDER
//
// FOLDER has DRIVER/vVERSION/FILE, with the drivers cpi, csi, antrea and external-snapshotter. Releases whose files
// are missing keep what the file lists for them. The matrix has the URL and the sha256 sum of each file.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
	manifests "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

const head = `# What the releases of default.yaml need of a cluster: the part "needs" of the document.
# Made by "make needs" from upstream's manifests; not written by hand.
`

func main() {
	upstream := flag.String("upstream", os.Getenv("VDO_UPSTREAM"), "`FOLDER` of upstream's manifests")
	out := flag.String("o", "matrix/default-needs.yaml", "`FILE` to write")
	flag.Parse()
	if err := run(*upstream, *out); err != nil {
		fmt.Fprintln(os.Stderr, "needs:", err)
		os.Exit(1)
	}
}

func run(upstream, out string) error {
	if upstream == "" {
		return errors.New("VDO_UPSTREAM is not set: it names the directory of upstream's manifests")
	}
	doc, err := matrix.Parse(matrix.DefaultName, matrix.Default())
	if err != nil {
		return err
	}
	for _, r := range doc.Releases {
		files, err := find(upstream, r)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "kept as listed, since its manifests are not there: %s\n", r.ReleaseID) //nolint:errcheck // stderr
			continue
		}
		if err == nil {
			err = needs.Describe(doc, r.ReleaseID, files)
		}
		if err != nil {
			return err
		}
	}
	data, err := doc.Marshal()
	if err != nil {
		return err
	}
	_, section, _ := bytes.Cut(data, []byte("\nneeds:\n"))
	return os.WriteFile(out, append([]byte(head+"needs:\n"), section...), 0o644) //nolint:gosec // a source of the project
}

// find returns the manifests of a release.
func find(upstream string, r matrix.Release) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, m := range r.Manifests {
		data, err := os.ReadFile(filepath.Join(upstream, manifests.Folder(r.Driver), "v"+r.Version.String(), m.Name))
		if err != nil {
			return nil, err
		}
		files[m.Name] = data
	}
	return files, nil
}
