//go:build linux

package model

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A site is shared by successive programs: upstream, keys, and each bundle without faults.
type site struct {
	binary   string
	dir      string
	upstream *registry.Registry
	keys     map[string]*ecdsa.PublicKey
	bundles  map[string]content // of a pull without faults
	known    map[string][]byte  // blobs of all bundles
	secrets  []string
	programs int
}

// The selections. c is a with the upstream referrers of its images.
var selections = map[string]string{"a": "cpi@1.33.1", "b": "cpi@1.34.0", "c": "cpi@1.33.1"}

// The serials of their matrices: they order a and b, but not a and c.
var serials = map[string]int{"a": 7, "b": 8, "c": 7}

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
		keys: map[string]*ecdsa.PublicKey{}, bundles: map[string]content{}, known: map[string][]byte{},
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
	require.NoError(t, writeFile(s.path("in", name), data))
}

func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// makeKeys writes the keys k1 and k2, which sign bundles, and the policy of both.
func (s *site) makeKeys(t testing.TB) {
	t.Helper()
	for _, name := range []string{"k1", "k2"} {
		key := pki.Root(t, name)
		s.keys[name] = &key.Key.PublicKey
		s.write(t, name+".key", key.KeyPEM())
		s.write(t, name+".pub", key.PublicPEM())
		s.secrets = append(s.secrets, strings.Split(string(key.KeyPEM()), "\n")[1])
	}
	s.write(t, "both.yaml", []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nthreshold: 2\nkeys:\n- {id: k1, file: k1.pub}\n- {id: k2, file: k2.pub}\n"))
}

// makeUpstream pushes the images, adds referrers to those of 1.33.1 and to their platforms' manifests, and writes a
// matrix for each bundle.
func (s *site) makeUpstream(t testing.TB) {
	matrix := ""
	for minor, spec := range map[string]images.Spec{
		"1.33": {Seed: 7, Layers: []int64{3000}, SharedLayers: []int64{300_000}, Platforms: images.Linux},
		"1.34": {Seed: 7, Layers: []int64{9000, 500}, SharedLayers: []int64{300_000}, Platforms: images.Linux, Docker: true},
	} {
		ref, _ := images.Push(t, s.upstream, "x/ccm:v"+minor, spec)
		manifest := fmt.Sprintf("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: ccm}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: ccm, image: %q}\n", "registry.test/ccm:v"+minor)
		s.write(t, "manifests/"+minor+".yaml", []byte(manifest))
		matrix += fmt.Sprintf("  - driver: cpi\n    version: %s.%d\n    state: current\n    kubernetes: {min: %q, max: %q, basis: test}\n    vsphere: {min: \"6.7.3\", basis: test}\n    manifests: [{name: ccm.yaml, url: \"https://127.0.0.1:1/%s.yaml\", size: %d, sha256: %s}]\n",
			minor, map[string]int{"1.33": 1}[minor], minor, minor, minor, len(manifest), strings.TrimPrefix(sum([]byte(manifest)), "sha256:"))
		if minor != "1.33" {
			continue
		}
		var index ocispec.Index
		stored := repository{s.upstream.Stored(), "x/ccm", nil}.blob(ref.Digest().String())
		require.NoError(t, json.Unmarshal(stored, &index))
		for n, d := range append(index.Manifests, ocispec.Descriptor{Digest: digest.Digest(ref.Digest().String())}) {
			images.Push(t, s.upstream, "x/ccm:sha256-"+d.Digest.Encoded()+".sig", images.Spec{Seed: uint64(100 + n)}) // whatever is in it
		}
	}
	for bundle, serial := range serials {
		s.write(t, "matrix-"+bundle+".yaml", []byte(fmt.Sprintf(matrixHead, serial)+matrix))
	}
}

// makeBundles locks and pulls every selection without faults.
func (s *site) makeBundles(t testing.TB) {
	p := must.Have(newWorld(s, registry.Options{}))(t)
	defer p.close()
	for _, name := range sorted(selections) {
		p.must(t, Step{Do: "lock", Bundle: name, To: place("lock-" + name + ".yaml")})
		s.write(t, "lock-"+name+".yaml", readRegular(p.path("out/lock-"+name+".yaml")))
		p.must(t, Step{Do: "pull", Bundle: name, To: "x.tar"})
		archive := readRegular(p.path("out/x.tar"))
		for name, blob := range untar(archive) {
			if hex, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
				s.known["sha256:"+hex] = blob
			}
		}
		s.bundles[name] = readTar(archive, s.keys)
		require.True(t, s.bundles[name].whole(), "the bundle %s lacks %v", name, s.bundles[name].missing)
		_ = os.Remove(p.path("out/x.tar"))
	}
}

// must runs a step that nothing hinders.
func (w *world) must(t testing.TB, s Step) {
	o := must.Have(w.start(w.args(s)))(t).wait()
	require.Zero(t, o.code, "%s: %s", s, o.stderr)
}
