// Needs writes matrix/default-needs.yaml: the needs of each release of the default matrix, from upstream's manifests.
//
//	go run ./scripts/needs -upstream FOLDER
//
// FOLDER has DRIVER/vVERSION/FILE, with the drivers cpi, csi, antrea and external-snapshotter. If the files of a
// release are missing, Needs derives them from another release by replacing version numbers. The sha256 sums of the
// matrix prove the match. It omits other releases, and names them on stderr.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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
	if err := run(*upstream, *out, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "needs:", err)
		os.Exit(1)
	}
}

func run(upstream, out string, log io.Writer) error {
	if upstream == "" {
		return errors.New("VDO_UPSTREAM is not set: it names the directory of upstream's manifests")
	}
	doc, err := matrix.Parse(matrix.DefaultName, matrix.Default())
	if err != nil {
		return err
	}
	doc.Needs = nil
	for _, r := range doc.Releases {
		files := find(upstream, r)
		if files == nil {
			fmt.Fprintf(log, "not listed, since its manifests are not there: %s (%s)\n", r.ReleaseID, r.State) //nolint:errcheck // stderr
			continue
		}
		if err := needs.Describe(doc, r.ReleaseID, files); err != nil {
			return err
		}
	}
	data, err := doc.Marshal()
	if err != nil {
		return err
	}
	_, section, ok := bytes.Cut(data, []byte("\nneeds:\n"))
	if !ok {
		return fmt.Errorf("no manifests below %q", upstream)
	}
	return os.WriteFile(out, append([]byte(head+"needs:\n"), section...), 0o644) //nolint:gosec // a source of the project
}

// find returns the manifests of a release, or nil unless it finds all.
func find(upstream string, r matrix.Release) map[string][]byte {
	files := map[string][]byte{}
	for _, m := range r.Manifests {
		data := file(filepath.Join(upstream, manifests.Folder(r.Driver)), r.Version.String(), m)
		if data == nil {
			return nil
		}
		files[m.Name] = data
	}
	return files
}

// file returns a manifest with the matrix's sum: an existing file, or one derived from another release.
func file(folder, version string, m matrix.Manifest) []byte {
	exists, err := filepath.Glob(filepath.Join(folder, "v*", m.Name))
	if err != nil {
		return nil
	}
	for _, path := range exists {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		other := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v")
		for _, made := range variants(data, other, version, m.Size) {
			if fmt.Sprintf("%x", sha256.Sum256(made)) == m.SHA256 {
				return made
			}
		}
	}
	return nil
}

// tagged matches the tag of a driver's own image.
var tagged = regexp.MustCompile(`((?:cloud-provider-vsphere|driver|syncer|manager):v)[0-9.]+(?:-[a-z0-9.]+)?`)

const (
	formerly = "gcr.io/cloud-provider-vsphere/cpi/release/manager"
	today    = "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere"
)

// variants returns the manifest of version from rewritten for version to, if of the right size. It replaces all
// version numbers or only those of images, which may lag behind, and the registry by its earlier or current name.
func variants(data []byte, from, to string, size int64) [][]byte {
	minor := func(v string) string { return v[:strings.LastIndexByte(v, '.')] }
	var all [][]byte
	add := func(made []byte) {
		for _, m := range [][]byte{made, bytes.ReplaceAll(made, []byte(formerly), []byte(today)), bytes.ReplaceAll(made, []byte(today), []byte(formerly))} {
			if int64(len(m)) == size {
				all = append(all, m)
			}
		}
	}
	add(data)
	found := tagged.FindAllSubmatch(data, -1)
	rest := len(data)
	for _, f := range found {
		rest -= len(f[0]) - len(f[1])
	}
	moved := len(today) - len(formerly)
	for patch := range 10 {
		for _, suffix := range []string{"", "-rc.1", "-rc.2", "-alpha.1", "-beta.1"} {
			tag := fmt.Sprintf("%s.%d%s", minor(to), patch, suffix)
			if d := int(size) - rest - len(found)*len(tag); len(found) == 0 || (d != 0 && d != moved && d != -moved) {
				continue
			}
			made := tagged.ReplaceAll(data, []byte("${1}"+tag))
			add(made)
			add(bytes.ReplaceAll(made, []byte(minor(from)), []byte(minor(to))))
		}
	}
	return all
}
