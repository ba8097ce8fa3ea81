//go:build linux

package model

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A content is the content of a location, read by this package without the program under test. A location is whole if
// everything that its root reaches, and all referrers of any of it, are there byte for byte.
type content struct {
	there      bool            // it says that it is a bundle
	root       string          // digest
	good       map[string]bool // existing digests: all but the root's referrers, which grow
	missing    []string        // named digests that are missing or have other bytes
	about      []string        // those of missing that are not below the root, but referrers of a part of it
	left       []string        // digests that a delta omits, for its base
	signers    []string        // signers of the root, sorted
	intact     []string        // those of them whose manifest names nothing damaged: a pull keeps only these
	statements int             // attestations of the root
	bytes      string          // sum of a file's bytes
}

// whole reports whether it is a complete bundle.
func (c content) whole() bool { return c.there && len(c.missing) == 0 && len(c.left) == 0 }

// sound reports whether nothing that it says it has is missing.
func (c content) sound() bool { return c.there && len(c.missing) == 0 }

// lacks returns the digests of another content that it lacks.
func (c content) lacks(other content) []string {
	var out []string
	for d := range other.good {
		if !c.good[d] {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	for _, name := range other.intact {
		if !slices.Contains(c.signers, name) {
			out = append(out, "the signature of "+name)
		}
	}
	if c.statements < other.statements {
		out = append(out, "a statement")
	}
	return out
}

// without returns a delta as if the blobs omitted for its base existed.
func (c content) without(whole content) content {
	c.good = maps.Clone(c.good)
	c.left = slices.DeleteFunc(slices.Clone(c.left), func(d string) bool {
		c.good[d] = true
		return whole.good[d]
	})
	return c
}

// below reports whether everything that its root reaches exists, whatever the state of referrers of its parts: verify
// checks only this.
func (c content) below() bool { return c.there && len(c.missing) == len(c.about) }

// A store is the bytes and names of a location.
type store interface {
	// blob returns the bytes of a digest, or nil.
	blob(digest string) []byte
	// about returns the manifests of a digest's referrers.
	about(digest string) []string
}

// gather walks a bundle from its root.
func gather(s store, root string, left []string, keys map[string]*ecdsa.PublicKey) content {
	c := content{there: true, root: root, good: map[string]bool{}}
	gone := map[string]bool{}
	for _, d := range left {
		gone[d] = true
	}
	seen, attached, aboutRoot := map[string]bool{}, false, false
	var visit func(digest string, manifest bool)
	visit = func(digest string, manifest bool) {
		if seen[digest] {
			return
		}
		seen[digest] = true
		data := s.blob(digest)
		switch {
		case data != nil && sum(data) == digest:
			if !aboutRoot {
				c.good[digest] = true
			}
		case gone[digest]:
			c.left = append(c.left, digest)
			return
		default:
			c.missing = append(c.missing, digest)
			if attached {
				c.about = append(c.about, digest)
			}
			return
		}
		if !manifest {
			return
		}
		var m struct {
			Config    *ocispec.Descriptor
			Layers    []ocispec.Descriptor
			Manifests []ocispec.Descriptor
		}
		_ = json.Unmarshal(data, &m)
		if m.Config != nil {
			visit(m.Config.Digest.String(), false)
		}
		for _, l := range m.Layers {
			visit(l.Digest.String(), false)
		}
		for _, child := range m.Manifests {
			visit(child.Digest.String(), true)
		}
		for _, a := range s.about(digest) {
			if digest != root { // the root's are last: a part shared with the rest belongs to the rest
				was := attached
				attached = true
				visit(a, true)
				attached = was
			}
		}
	}
	visit(root, true)
	attached, aboutRoot = true, true
	for _, a := range s.about(root) {
		visit(a, true)
		by, statements, intact := signersOf(s, a, root, keys)
		c.signers, c.statements = append(c.signers, by...), c.statements+statements
		if intact {
			c.intact = append(c.intact, by...)
		}
	}
	slices.Sort(c.missing)
	slices.Sort(c.signers)
	c.signers = slices.Compact(c.signers)
	return c
}

const signatureAnnotation = "dev.cosignproject.cosign/signature"

// signersOf returns the signers of a claim about the root in a manifest that refers to it, the number of its
// statements, and whether everything that it names has its bytes.
func signersOf(
	s store, manifest, root string, keys map[string]*ecdsa.PublicKey,
) (out []string, statements int, intact bool) {
	var m ocispec.Manifest
	if data := s.blob(manifest); sum(data) != manifest || json.Unmarshal(data, &m) != nil {
		return nil, 0, false
	}
	intact = true
	for _, l := range append(m.Layers, m.Config) {
		if l.MediaType == "application/vnd.dsse.envelope.v1+json" {
			statements++
		}
		claim := s.blob(l.Digest.String())
		if sum(claim) != l.Digest.String() {
			intact = false
			continue
		}
		text, ok := l.Annotations[signatureAnnotation]
		signature, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || !bytes.Contains(claim, []byte(root)) {
			continue
		}
		digest := sha256.Sum256(claim)
		for name, key := range keys {
			if ecdsa.VerifyASN1(key, digest[:], signature) {
				out = append(out, name)
			}
		}
	}
	return out, statements, intact
}

func sum(data []byte) string { return digest.FromBytes(data).String() }

// layout is an OCI image layout in memory.
type layout struct {
	blobs map[string][]byte
	names map[string][]string // of index.json: digests by name, in their order
	other []string            // entries other than the root
}

func (l layout) blob(digest string) []byte { return l.blobs[digest] }

// about returns the entries of index.json with a tag of the digest; all without such a tag refer to the root.
func (l layout) about(digest string) (out []string) {
	prefix := strings.Replace(digest, ":", "-", 1)
	for name, of := range l.names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, of...)
		}
	}
	if slices.Contains(l.names["bundle"], digest) {
		out = append(out, l.other...)
	}
	slices.Sort(out)
	return out
}

func readLayout(files map[string][]byte, keys map[string]*ecdsa.PublicKey) content {
	var index ocispec.Index
	if json.Unmarshal(files["index.json"], &index) != nil {
		return content{}
	}
	l := layout{blobs: map[string][]byte{}, names: map[string][]string{}}
	for name, data := range files {
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			l.blobs["sha256:"+digest] = data
		}
	}
	for _, d := range index.Manifests {
		name := d.Annotations[ocispec.AnnotationRefName]
		l.names[name] = append(l.names[name], d.Digest.String())
		if name != "bundle" && !strings.HasPrefix(name, "sha256-") {
			l.other = append(l.other, d.Digest.String())
		}
	}
	if len(l.names["bundle"]) != 1 {
		return content{}
	}
	return gather(l, l.names["bundle"][0], strings.Fields(index.Annotations["vdo.vmware.com/base.layers"]), keys)
}

// untar returns the files of an archive. The last of several entries of one name wins.
func untar(data []byte) map[string][]byte {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err != nil {
			return files
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			delete(files, h.Name)
			return files
		}
	}
}

func readTar(data []byte, keys map[string]*ecdsa.PublicKey) content {
	c := readLayout(untar(data), keys)
	c.bytes = sum(data)
	return c
}

func readParts(list string, keys map[string]*ecdsa.PublicKey) content {
	if _, err := os.Stat(list); err != nil {
		return content{}
	}
	names, _ := filepath.Glob(strings.TrimSuffix(list, ".parts") + ".[0-9][0-9][0-9]")
	var all []byte
	for _, name := range names {
		all = append(all, readRegular(name)...)
	}
	c := readTar(all, keys)
	c.there = true
	return c
}

func readFolder(dir string, keys map[string]*ecdsa.PublicKey) content {
	files := map[string][]byte{"index.json": readRegular(filepath.Join(dir, "index.json"))}
	found, _ := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	for _, e := range found {
		files["blobs/sha256/"+e.Name()] = readRegular(filepath.Join(dir, "blobs", "sha256", e.Name()))
	}
	return readLayout(files, keys)
}

// readRegular reads a regular file; nil for links and others.
func readRegular(name string) []byte {
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, _ := os.ReadFile(name)
	return data
}

// repository is one repository of a registry, read without its faults.
type repository struct {
	registry http.Handler
	name     string
	known    map[string][]byte // blobs that need not be read if they exist
}

// ask returns the body of a response, or nil.
func (r repository) ask(method, path string) []byte {
	req := httptest.NewRequest(method, "http://registry/v2/"+r.name+path, nil)
	req.Header.Set("Accept", manifestTypes)
	w := httptest.NewRecorder()
	if r.registry.ServeHTTP(w, req); w.Code != http.StatusOK {
		return nil
	}
	return append([]byte{}, w.Body.Bytes()...)
}

var manifestTypes = strings.Join([]string{
	ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
}, ", ")

// tag returns the digest of a tag, or "".
func (r repository) tag(tag string) string {
	data := r.ask(http.MethodGet, "/manifests/"+tag)
	if data == nil {
		return ""
	}
	return sum(data)
}

func (r repository) blob(digest string) []byte {
	if data := r.known[digest]; data != nil && data[0] != '{' {
		if r.ask(http.MethodHead, "/blobs/"+digest) == nil {
			return nil
		}
		return data
	}
	if data := r.ask(http.MethodGet, "/blobs/"+digest); data != nil {
		return data
	}
	return r.ask(http.MethodGet, "/manifests/"+digest)
}

// about returns the digests under cosign's tags and the referrers' fallback tag.
func (r repository) about(digest string) (out []string) {
	base := strings.Replace(digest, ":", "-", 1)
	for _, end := range []string{".sig", ".att", ".sbom"} {
		if d := r.tag(base + end); d != "" {
			out = append(out, d)
		}
	}
	for _, path := range []string{"/referrers/" + digest, "/manifests/" + base} {
		var index ocispec.Index
		if data := r.ask(http.MethodGet, path); data != nil && json.Unmarshal(data, &index) == nil {
			for _, d := range index.Manifests {
				out = append(out, d.Digest.String())
			}
		}
	}
	return out
}

func (r repository) read(tag string, keys map[string]*ecdsa.PublicKey) content {
	root := r.tag(tag)
	if root == "" {
		return content{}
	}
	return gather(r, root, nil, keys)
}

// tree returns the files below a directory, by their relative names.
func tree(root string) map[string]fs.FileInfo {
	out := map[string]fs.FileInfo{}
	_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			if info, statErr := d.Info(); statErr == nil {
				out[strings.TrimPrefix(strings.TrimPrefix(name, root), "/")] = info
			}
		}
		return nil
	})
	return out
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
