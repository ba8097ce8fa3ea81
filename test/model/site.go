//go:build linux

package model

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A site is what programs share that run one after the other: upstream, keys, and what
// each bundle is when nothing goes wrong.
type site struct {
	binary   string
	dir      string
	upstream *registry.Registry
	private  map[string]*ecdsa.PrivateKey
	keys     map[string]*ecdsa.PublicKey
	tsa      string
	bundles  map[string]bundle
	known    map[string][]byte // blobs of all bundles
	secrets  []string
	programs int
}

// A bundle is what a selection gives: its lock, and the archive of a pull without faults.
type bundle struct {
	lock  []byte
	tar   []byte
	files map[string][]byte // blobs by digest
	content
}

// The selections. c is a, with upstream's own signatures; e is what nobody asked for
// and nobody signed: only the registry of a liar has it.
var selections = map[string]string{"a": "cpi@1.33.1", "b": "cpi@1.34.0", "c": "cpi@1.33.1", "e": "cpi@1.35.0"}

// The serials of their matrices: of b and a one is shown to be older where it was pushed
// first, of a and c neither by its matrix.
var serials = map[string]int{"a": 7, "b": 8, "c": 7, "e": 7}

const matrixHead = `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: %d
issued: 2026-01-01T00:00:00Z
expires: 2099-01-01T00:00:00Z
releases:
`

// newSite opens a site; it ends with the test.
func newSite(t testing.TB, binary string) *site {
	t.Helper()
	s := &site{
		binary: binary, dir: t.TempDir(), upstream: registry.Start(t, registry.Options{}),
		private: map[string]*ecdsa.PrivateKey{}, keys: map[string]*ecdsa.PublicKey{}, bundles: map[string]bundle{}, known: map[string][]byte{},
	}
	s.makeKeys(t)
	s.makeUpstream(t)
	s.makeBundles(t)
	return s
}

func (s *site) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *site) write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := writeFile(s.path("in", name), data); err != nil {
		t.Fatal(err)
	}
}

func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// makeKeys writes the keys k1 and k2, who sign bundles, signer, who has a certificate, and
// up, who signs upstream's images; and the policies of the site.
func (s *site) makeKeys(t testing.TB) {
	t.Helper()
	root := pki.Root(t, "root")
	signer := root.Issue(t, pki.Spec{Name: "signer", Email: []string{"signer@site.test"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
	clock := root.Issue(t, pki.Spec{Name: "clock", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	s.tsa = clock.ServeStamps(t)
	keys := map[string]pki.Authority{"signer": signer}
	for _, name := range []string{"k1", "k2", "up"} {
		keys[name] = pki.Root(t, name)
	}
	for name, key := range keys {
		s.private[name], s.keys[name] = key.Key, &key.Key.PublicKey
		s.write(t, name+".key", key.KeyPEM())
		s.write(t, name+".pub", key.PublicPEM())
		s.secrets = append(s.secrets, strings.Split(string(key.KeyPEM()), "\n")[1])
	}
	s.write(t, "signer.crt", signer.PEM())
	s.write(t, "root.crt", root.PEM())
	s.write(t, "both.yaml", []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nthreshold: 2\nkeys:\n- {id: k1, file: k1.pub}\n- {id: k2, file: k2.pub}\n"))
	s.write(t, "signer.yaml", []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\ncertificates:\n- id: signer\n  rootsFile: root.crt\n  timestampRootsFile: root.crt\n  identities:\n  - email: signer@site.test\n"))
}

// makeUpstream pushes the images, signs those of 1.33.1 and their platforms' manifests,
// and writes a matrix for each bundle.
func (s *site) makeUpstream(t testing.TB) {
	t.Helper()
	matrix := ""
	for minor, spec := range map[string]images.Spec{
		"1.33": {Seed: 7, Layers: []int64{3000}, SharedLayers: []int64{300_000}, Platforms: images.Linux},
		"1.34": {Seed: 7, Layers: []int64{9000, 500}, SharedLayers: []int64{300_000}, Platforms: images.Linux, Docker: true},
		"1.35": {Seed: 8, Layers: []int64{2000}, Platforms: images.Linux},
	} {
		ref, _ := images.Push(t, s.upstream, "x/ccm:v"+minor, spec)
		manifest := fmt.Sprintf("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: ccm}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: ccm, image: %q}\n", "registry.test/ccm:v"+minor)
		s.write(t, "manifests/"+minor+".yaml", []byte(manifest))
		matrix += fmt.Sprintf("  - driver: cpi\n    version: %s.%d\n    state: current\n    kubernetes: {min: %q, max: %q, basis: test}\n    vsphere: {min: \"6.7.3\", basis: test}\n    manifests: [{name: ccm.yaml, url: \"https://127.0.0.1:1/%s.yaml\", size: %d, sha256: %s}]\n",
			minor, map[string]int{"1.33": 1}[minor], minor, minor, minor, len(manifest), strings.TrimPrefix(sum([]byte(manifest)), "sha256:"))
		if minor != "1.33" {
			continue
		}
		repo := repository{s.upstream.Stored(), "x/ccm", nil}
		var index ocispec.Index
		if err := json.Unmarshal(repo.blob(ref.Digest().String()), &index); err != nil {
			t.Fatal(err)
		}
		for _, d := range append(index.Manifests, ocispec.Descriptor{Digest: index.Manifests[0].Digest, Size: -1}) {
			subject := d.Digest.String()
			if d.Size < 0 {
				subject = ref.Digest().String()
			}
			if err := s.sign(repo, subject, "up"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for bundle, serial := range serials {
		s.write(t, "matrix-"+bundle+".yaml", []byte(fmt.Sprintf(matrixHead, serial)+matrix))
	}
}

// sign puts a signature of a digest into a repository, under cosign's tag, in the place
// of what is there.
func (s *site) sign(repo repository, subject string, by ...string) error {
	config := []byte("{}")
	claim := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"test"},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, subject)
	descriptor := func(mediaType string, data []byte) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	}
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: descriptor(ocispec.MediaTypeImageConfig, config)}
	m.SchemaVersion = 2
	for _, name := range by {
		hashed := sha256.Sum256(claim)
		signature, err := ecdsa.SignASN1(rand.Reader, s.private[name], hashed[:])
		if err != nil {
			return err
		}
		layer := descriptor("application/vnd.dev.cosign.simplesigning.v1+json", claim)
		layer.Annotations = map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}
		m.Layers = append(m.Layers, layer)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return errors.Join(repo.putBlob(config), repo.putBlob(claim), repo.put(data, strings.Replace(subject, ":", "-", 1)+".sig"))
}

// makeBundles locks and pulls every selection without faults.
func (s *site) makeBundles(t testing.TB) {
	t.Helper()
	p, err := newWorld(s, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, name := range sorted(selections) {
		p.must(t, Step{Do: "lock", Bundle: name, To: "lock-" + name + ".yaml"})
		data, err := os.ReadFile(p.path("out/lock-" + name + ".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, "lock-"+name+".yaml", data)
		s.bundles[name] = bundle{lock: data}
		p.must(t, Step{Do: "pull", Bundle: name, To: "x.tar"})
		b := bundle{lock: data, files: map[string][]byte{}}
		if b.tar, err = os.ReadFile(p.path("out/x.tar")); err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(bytes.NewReader(b.tar)); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			if hex, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok {
				b.files["sha256:"+hex], _ = io.ReadAll(r)
			}
		}
		if b.content = readTar(b.tar, s.keys); !b.whole() {
			t.Fatalf("the bundle %s lacks %v", name, b.missing)
		}
		s.bundles[name] = b
		maps.Copy(s.known, b.files)
		_ = os.Remove(p.path("out/x.tar"))
	}
}

// must runs a step that nothing hinders.
func (w *world) must(t testing.TB, s Step) {
	t.Helper()
	p, err := w.start(w.args(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	if o := p.wait(); o.code != 0 {
		t.Fatalf("%s: %s", s, o.stderr)
	}
}

// plant stores a bundle in a repository, past its faults.
func (s *site) plant(repo repository, name string, tags ...string) error {
	b := s.bundles[name]
	var errs []error
	for _, digest := range sorted(b.good) {
		if !slices.Contains(b.manifests, digest) {
			errs = append(errs, repo.putBlob(b.files[digest]))
		}
	}
	for _, digest := range b.manifests { // the root comes last
		errs = append(errs, repo.put(b.files[digest]))
	}
	return errors.Join(append(errs, repo.put(b.files[b.root], tags...))...)
}
