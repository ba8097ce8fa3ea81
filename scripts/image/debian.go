package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/ulikunitz/xz"
)

// snapshot is Debian's archive with the files of debian.tsv.
const snapshot = "https://snapshot.debian.org/archive/debian/20260712T000000Z"

// userFile is the file that the entrypoint writes: passwd in RunDir of package jumphost.
const userFile = "/run/vdo-jumphost/passwd"

// lookups keep names from DNS.
const lookups = "passwd: files\ngroup: files\nhosts: files\n"

// maxPackage is the size limit of a package, in bytes.
const maxPackage = 32 << 20

//go:embed debian.tsv
var packages string

// archive is the URL of an untrusted Debian archive or mirror.
type archive string

// layer returns OpenSSH's server, its libraries, their licenses and the package data for scanners. It adds the files
// that let the entrypoint name the user.
func (a archive) layer(ctx context.Context, architecture, list string) (v1.Layer, error) {
	var out bytes.Buffer
	to := tar.NewWriter(&out)
	found := false
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(fields) != 3 || fields[0] != architecture {
			continue
		}
		found = true
		deb, err := a.fetch(ctx, fields[1], fields[2])
		if err == nil {
			name, _, _ := strings.Cut(path.Base(fields[1]), "_")
			err = unpack(to, name, deb)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields[1], err)
		}
	}
	if !found {
		return nil, fmt.Errorf("debian.tsv has no packages for %s", architecture)
	}
	err := errors.Join(
		link(to, "etc/passwd", userFile), add(to, "etc/nsswitch.conf", 0o644, []byte(lookups)), to.Close(),
	)
	if err != nil {
		return nil, err
	}
	return layerOf(out.Bytes())
}

func layerOf(archive []byte) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// fetch returns a file of the archive, and verifies its digest.
func (a archive) fetch(ctx context.Context, name, digest string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(string(a), "/")+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxPackage))
	if err != nil {
		return nil, err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != digest {
		return nil, fmt.Errorf("expected sha256:%s, got sha256:%s", digest, sum)
	}
	return data, nil
}

// unpack adds the needed files of a package (deb(5): an ar archive of two tar archives).
func unpack(to *tar.Writer, name string, deb []byte) error {
	const magic, header = "!<arch>\n", 60
	rest, ok := bytes.CutPrefix(deb, []byte(magic))
	for ok && len(rest) >= header {
		member := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-header {
			break
		}
		content := rest[header : header+size]
		rest = rest[min(len(rest), header+size+size%2):]
		switch member {
		case "control.tar.xz":
			err = eachFile(content, func(h *tar.Header, data []byte) error {
				if h.Name != "control" {
					return nil
				}
				return add(to, "var/lib/dpkg/status.d/"+name, 0o644, data)
			})
		case "data.tar.xz":
			return eachFile(content, func(h *tar.Header, data []byte) error {
				switch {
				case !isNeeded(h.Name):
					return nil
				case h.Typeflag == tar.TypeSymlink:
					return link(to, h.Name, h.Linkname)
				}
				return add(to, h.Name, h.Mode&0o755, data)
			})
		}
		if err != nil {
			return err
		}
	}
	return errors.New("is not a package with data.tar.xz")
}

// isNeeded reports whether the image needs a file of a package.
func isNeeded(name string) bool {
	dir, file := path.Split(name)
	switch {
	case name == "usr/sbin/sshd", file == "os-release":
		return true
	case strings.HasPrefix(dir, "usr/share/doc/"):
		return file == "copyright"
	}
	dir = strings.TrimPrefix(dir, "usr/")
	multiarch, _ := path.Match("lib/*-linux-gnu/", dir)
	return (multiarch || dir == "lib/" || dir == "lib64/") && strings.Contains(file, ".so")
}

// eachFile calls fn for the files and links of a compressed tar archive.
func eachFile(compressed []byte, fn func(h *tar.Header, data []byte) error) error {
	plain, err := xz.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return err
	}
	from := tar.NewReader(plain)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Name = strings.TrimPrefix(h.Name, "./")
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink {
			continue
		}
		data, err := io.ReadAll(from)
		if err == nil {
			err = fn(h, data)
		}
		if err != nil {
			return err
		}
	}
}

// add writes a file without a time, so that the same files are the same layer.
func add(to *tar.Writer, name string, mode int64, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}
	if err := to.WriteHeader(h); err != nil {
		return err
	}
	_, err := to.Write(data)
	return err
}

func link(to *tar.Writer, name, target string) error {
	return to.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}
