// Command image builds the operator's container image as an OCI image layout,
// without a container engine: one static executable for each platform, as user
// 65532, and nothing else. The same sources and version give the same digest.
//
//	go run ./scripts/image -version 1.2.3 -o dist/vdo-operator
//	skopeo copy --all oci:dist/vdo-operator docker://mirror.site/vdo/operator:1.2.3
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	program  = "vdo-operator"
	patience = 10 * time.Second // with a compiler that was told to end
)

type options struct {
	version, out, platforms string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "unknown", "version that the program reports")
	flag.StringVar(&o.out, "o", "dist/"+program, "folder of the OCI image layout; replaced when the image is complete")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	digest, err := build(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("%s@%s\n", o.out, digest)
}

// build makes the layout beside its place and moves it there when it is complete.
func build(ctx context.Context, o options) (v1.Hash, error) {
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
		img, err := buildImage(ctx, work, *platform, o.version)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return write(index, o)
}

func write(index v1.ImageIndex, o options) (v1.Hash, error) {
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return v1.Hash{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(o.out), ".image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir, err := layout.Write(tmp, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := dir.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": o.version})); err != nil {
		return v1.Hash{}, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return v1.Hash{}, err
	}
	if _, err := os.Stat(filepath.Join(o.out, "oci-layout")); err != nil {
		if entries, err := os.ReadDir(o.out); err == nil && len(entries) > 0 {
			return v1.Hash{}, fmt.Errorf("%s is there and is not an OCI layout: name another folder with -o", o.out)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return v1.Hash{}, err
		}
	}
	if err := os.RemoveAll(o.out); err != nil {
		return v1.Hash{}, err
	}
	return digest, os.Rename(tmp, o.out)
}

func buildImage(ctx context.Context, work string, p v1.Platform, version string) (v1.Image, error) {
	exe := filepath.Join(work, program+"-"+p.Architecture)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+version, "-o", exe, "./operator/cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes what it has half made
	cmd.WaitDelay = patience
	fmt.Fprintf(os.Stderr, "building %s for %s; the first time this takes some minutes\n", program, p)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	layer, err := programLayer(exe)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = p.OS, p.Architecture
	config.Config = v1.Config{
		Entrypoint: []string{"/" + program}, User: "65532:65532", WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

// programLayer is a layer with the executable alone, without times, so that the
// same executable is the same layer.
func programLayer(exe string) (v1.Layer, error) {
	info, err := os.Stat(exe)
	if err != nil {
		return nil, err
	}
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(&tar.Header{
		Name: program, Mode: 0o555, Size: info.Size(), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
	}); err != nil {
		return nil, err
	}
	const block = 512
	padding := make([]byte, (block-info.Size()%block)%block+2*block)
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		f, err := os.Open(exe)
		if err != nil {
			return nil, err
		}
		return readCloser{io.MultiReader(bytes.NewReader(header.Bytes()), f, bytes.NewReader(padding)), f}, nil
	}, tarball.WithMediaType(types.OCILayer))
}

type readCloser struct {
	io.Reader
	io.Closer
}
