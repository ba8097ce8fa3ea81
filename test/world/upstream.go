// Package world surrounds a site. It has the upstream world of a connected host: image registries and a web server of
// manifests. It has the private mirror behind the gap, and the hosts where people type. The site itself, with vCenter
// and cluster, is in test/site. The demo and the end-to-end tests run the main job in them.
//
// The registries are real: the reference implementation, over TLS. Images are small programs of the project under the
// real names. The manifests are stand-ins too, unless a directory of the real ones is given.
package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing/fstest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Upstream is the upstream world of a connected host.
type Upstream struct {
	// Registry holds all images, under their upstream paths.
	Registry *registry.Registry
	// Images are the pushed references.
	Images []image.Reference

	document *matrix.Document
	services bool
	web      *httptest.Server
	files    fstest.MapFS // of the web server
	named    []string     // references that the manifests name, at their places today
}

// UpstreamOptions are the options of an upstream world.
type UpstreamOptions struct {
	// Dir for files of the world itself.
	Dir string
	// Manifests is the directory of the real manifests; "" uses the stand-ins.
	Manifests string
	// Releases to serve, such as csi@3.5.1.
	Releases []string
	// Hurry sets minReadySeconds of the manifests to 0: upstream lets the snapshot-controller settle for 35 seconds.
	// It changes nothing else.
	Hurry bool
	// JumpHost is the upstream location of the tenant clusters' jump host, as REPO:TAG; "" for none. With it,
	// upstream has the matrix's services.
	JumpHost string
	// Program is a static executable that the images consist of, under the last part of their names; "" uses random
	// layers.
	Program string
}

// NewUpstream starts an upstream world.
func NewUpstream(ctx context.Context, o UpstreamOptions) (_ *Upstream, err error) {
	u := &Upstream{files: fstest.MapFS{}}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	if u.document, err = matrix.Parse(matrix.DefaultName, matrix.Default()); err != nil {
		return nil, err
	}
	if u.Registry, err = registry.New(registry.Options{TLS: true, Names: []string{"upstream.test"}}); err != nil {
		return nil, err
	}
	u.web = httptest.NewTLSServer(http.FileServerFS(u.files))
	releases, err := u.pick(o.Releases)
	if err != nil {
		return nil, err
	}
	if err := u.publish(releases, o); err != nil {
		return nil, err
	}
	cas := append(slices.Clone(u.Registry.CA()), pemOf(u.web)...)
	if err := os.WriteFile(filepath.Join(o.Dir, caFile), cas, 0o600); err != nil {
		return nil, err
	}
	if o.JumpHost != "" {
		if err := u.addServices(o.JumpHost); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(u.named))) {
		if err := u.push(ctx, name, o.Program); err != nil {
			return nil, fmt.Errorf("world: push %s: %w", name, err)
		}
	}
	return u, nil
}

// addServices names the image of each service's chosen release, and of the jump host.
func (u *Upstream) addServices(jumpHost string) error {
	u.services, u.named = true, append(u.named, u.Registry.Host+"/"+jumpHost)
	for _, s := range matrix.Services() {
		r, err := u.document.ChooseService(s, nil)
		if err != nil {
			return err
		}
		u.named = append(u.named, r.Image)
	}
	return nil
}

// Close ends the upstream world.
func (u *Upstream) Close() {
	if u.web != nil {
		_ = u.web.Config.Close() // its own Close waits for requests without a limit
	}
	if u.Registry != nil {
		_ = u.Registry.Close()
	}
}

// Files in the world's folder.
const (
	caFile     = "upstream-ca.crt" // of the registry and the web server
	matrixFile = "matrix.yaml"     // the built-in one, with the web server's addresses and the sums of what it serves
)

// Flags returns vdo-bundle's flags for this world instead of the real one. vdo-bundle has to run in the world's folder.
func (u *Upstream) Flags() []string {
	flags := []string{
		"--source-map", "registry.k8s.io=" + u.Registry.Host,
		"--source-map", "docker.io=" + u.Registry.Host,
	}
	if u.services {
		flags = append(flags, "--source-map", "ghcr.io="+u.Registry.Host)
	}
	return append(flags, "--ca-file", caFile, "--matrix", matrixFile)
}

func (u *Upstream) pick(ids []string) ([]*matrix.Release, error) {
	var out []*matrix.Release
	for _, id := range ids {
		i := slices.IndexFunc(u.document.Releases, func(r matrix.Release) bool { return r.String() == id })
		if i < 0 {
			return nil, fmt.Errorf("world: the matrix has no release %s", id)
		}
		out = append(out, &u.document.Releases[i])
	}
	return out, nil
}

// publish serves the releases' manifests and writes the matrix with their addresses.
func (u *Upstream) publish(releases []*matrix.Release, o UpstreamOptions) error {
	document := *u.document
	document.Releases, document.Needs = nil, nil
	for _, r := range releases {
		var manifests []matrix.Manifest
		files := map[string][]byte{}
		for _, m := range r.Manifests {
			data, err := upstream.Read(o.Manifests, r.ReleaseID, m.Name)
			if err != nil {
				return fmt.Errorf("world: %w", err)
			}
			if o.Hurry {
				data = upstream.Hurried(data)
			}
			at := fmt.Sprintf("%s/v%s/%s", r.Driver, r.Version, m.Name)
			u.files[at], files[m.Name] = &fstest.MapFile{Data: data}, data
			for _, name := range upstream.Images(data) {
				named, err := fetchedAs(name, r)
				if err != nil {
					return err
				}
				u.named = append(u.named, named)
			}
			sum := sha256.Sum256(data)
			m.URL, m.Size, m.SHA256 = u.web.URL+"/"+at, int64(len(data)), hex.EncodeToString(sum[:])
			manifests = append(manifests, m)
		}
		r.Manifests = manifests
		document.Releases = append(document.Releases, *r)
		if err := needs.Describe(&document, r.ReleaseID, files); err != nil {
			return err
		}
	}
	data, err := document.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Dir, matrixFile), data, 0o600)
}

// fetchedAs returns the place of an image that the matrix and the list of moved registries name.
func fetchedAs(name string, r *matrix.Release) (string, error) {
	for _, o := range r.Images {
		if o.From == name {
			name = o.To
		}
	}
	ref, err := image.ParseReference(name)
	if err != nil {
		return "", err
	}
	ref, _ = image.Relocate(ref)
	return ref.String(), nil
}

// push pushes an index of two platforms, as upstream does. The reference is in its labels, so no two references share
// a digest.
func (u *Upstream) push(ctx context.Context, name, program string) error {
	ref, err := image.ParseReference(name)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(ref.String()))
	spec := images.Spec{
		Seed: uint64(sum[0]) | uint64(sum[1])<<8 | uint64(sum[2])<<16 | uint64(sum[3])<<24, Platforms: images.Linux,
		Program: program, ProgramName: path.Base(ref.Path()), Labels: map[string]string{"org.opencontainers.image.ref.name": ref.String()},
	}
	if program == "" {
		spec.Layers = []int64{64 << 10, 4 << 10}
	}
	built, err := images.Build(spec)
	if err != nil {
		return err
	}
	u.Images = append(u.Images, ref)
	_, err = built.Push(ctx, u.Registry, ref.String())
	return err
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// StartMirror runs a site's private registry until Close, with TLS by a private CA and login by password. It listens
// at an address, IP:PORT; "" is a free port of loopback. It writes DIR/mirror-ca.crt and the login,
// DIR/docker/config.json.
func StartMirror(dir, address string) (*registry.Registry, error) {
	r, err := registry.New(registry.Options{TLS: true, Auth: registry.Basic, Names: []string{"mirror.test"}, Address: address})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(dir, "docker"), 0o700),
		os.WriteFile(filepath.Join(dir, "mirror-ca.crt"), r.CA(), 0o600),
		os.WriteFile(filepath.Join(dir, "docker", "config.json"), r.DockerConfig(), 0o600),
	)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
