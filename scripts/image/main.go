// Command image builds a container image of a release, the operator's or the jump host's, as an OCI image layout,
// without a container engine. The operator's has one static executable. The jump host's has its entrypoint, and
// OpenSSH's server with its libraries from the Debian packages of debian.tsv. Both run as user 65532. The same
// sources and version give the same digests.
//
//	go run ./scripts/image -program vdo-operator -version 1.2.3 -o dist
//	skopeo copy --all oci:dist/vdo-operator docker://mirror.site/vdo/vdo-operator:1.2.3
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const patience = 10 * time.Second // for a compiler after an interrupt

type options struct {
	version, dir, platforms, program, debian string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "unknown", "version that the programs report")
	flag.StringVar(&o.dir, "o", "dist", "folder of the OCI image layouts, one below it for each program; replaced when the image is complete")
	flag.StringVar(&o.program, "program", "vdo-operator", "program below operator/cmd")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.StringVar(&o.debian, "debian", snapshot, "URL of a Debian archive that has the packages of debian.tsv")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	out := filepath.Join(o.dir, o.program)
	digest, err := build(ctx, out, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("%s@%s\n", out, digest)
}

// build builds the layout beside its place and moves it there when it is complete.
func build(ctx context.Context, out string, o options) (v1.Hash, error) {
	work, err := os.MkdirTemp("", "vdo-image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range strings.Split(o.platforms, ",") {
		platform, err := v1.ParsePlatform(p)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return v1.Hash{}, fmt.Errorf("platform %q: write it as OS/ARCH such as linux/amd64", p)
		}
		img, err := buildImage(ctx, filepath.Join(work, platform.Architecture), *platform, o)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return write(index, out, o.version)
}

func write(index v1.ImageIndex, out, version string) (v1.Hash, error) {
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return v1.Hash{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir, err := layout.Write(tmp, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := dir.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return v1.Hash{}, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return v1.Hash{}, err
	}
	if _, err := os.Stat(filepath.Join(out, "oci-layout")); err != nil {
		if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
			return v1.Hash{}, fmt.Errorf("%s is there and is not an OCI layout: name another folder with -o", out)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return v1.Hash{}, err
		}
	}
	if err := os.RemoveAll(out); err != nil {
		return v1.Hash{}, err
	}
	return digest, os.Rename(tmp, out)
}

// buildImage builds the program as exe, and the image with it.
func buildImage(ctx context.Context, exe string, p v1.Platform, o options) (v1.Image, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", toolchain.BuildTags,
		"-ldflags", "-s -w -X main.version="+o.version, "-o", exe, "./operator/cmd/"+o.program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes partial results
	cmd.WaitDelay = patience
	fmt.Fprintf(os.Stderr, "building %s for %s; the first time this takes some minutes\n", o.program, p)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	layer, err := programLayer(o.program, exe)
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{layer}
	if o.program == "vdo-jumphost" {
		debian, err := archive(o.debian).layer(ctx, p.Architecture, packages)
		if err != nil {
			return nil, fmt.Errorf("%w; -debian names another archive", err)
		}
		layers = []v1.Layer{debian, layer}
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = p.OS, p.Architecture
	config.Config = v1.Config{
		Entrypoint: []string{"/" + o.program}, User: "65532:65532", WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    o.program,
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

// programLayer returns a layer with only the executable, without times, so that the same executable gives the same
// layer.
func programLayer(program, exe string) (v1.Layer, error) {
	data, err := os.ReadFile(exe)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	to := tar.NewWriter(&out)
	if err := errors.Join(add(to, program, 0o555, data), to.Close()); err != nil {
		return nil, err
	}
	return layerOf(out.Bytes())
}
