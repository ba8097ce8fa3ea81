package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// placeKind is what kind of place it is.
type placeKind int

const (
	inFile placeKind = iota
	inFolder
	inRegistry
	inStream
)

// place is where a bundle is, or will be: FILE.tar, FILE.tar.parts, oci:DIR,
// REGISTRY/REPO[:TAG|@DIGEST], or - for standard input and output.
type place struct {
	medium    placeKind
	path      string          // of a file or folder
	reference image.Reference // in a registry
}

// String writes the place as it is given.
func (p place) String() string {
	switch p.medium {
	case inFolder:
		return "oci:" + p.path
	case inRegistry:
		return p.reference.String()
	case inStream:
		return "-"
	}
	return p.path
}

const placeHint = "write FILE.tar or ./FILE for an archive, oci:DIR for a folder, or HOST/REPOSITORY:TAG with the registry's host name (and port) for a registry"

// parsePlace reads a place. What ends in .tar or .parts, or starts as a path, is a file.
// A registry's host has a dot or a port, or is localhost, so that a mistyped file
// name is never taken for a repository of Docker Hub.
func parsePlace(s string) (place, error) {
	bad := func(why string) (place, error) {
		return place{}, fault.Errorf(fault.InvalidInput, "read place", fmt.Sprintf("%q", s), placeHint, "%s", why)
	}
	if dir, ok := strings.CutPrefix(s, "oci:"); ok {
		if dir == "" {
			return bad("missing folder after oci:")
		}
		return place{medium: inFolder, path: dir}, nil
	}
	if s == "-" {
		return place{medium: inStream}, nil
	}
	host, _, slash := strings.Cut(s, "/")
	switch {
	case strings.HasSuffix(s, ".tar") || strings.HasSuffix(s, parts.Suffix) || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../"):
		return place{medium: inFile, path: s}, nil
	case strings.Contains(s, "://"):
		return bad("a registry is named without a scheme")
	case !slash:
		return bad("not a .tar file, and not a registry reference")
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return bad(fmt.Sprintf("not a registry reference: %q has no dot and no port", host))
	}
	ref, err := image.ParseReference(s)
	if err != nil {
		return place{}, err
	}
	return place{medium: inRegistry, reference: ref}, nil
}

// placeIn reads a place that has to be of some kinds; why and hint are for others.
func placeIn(op, s, why, hint string, kinds ...placeKind) (place, error) {
	p, err := parsePlace(s)
	if err == nil && !slices.Contains(kinds, p.medium) {
		err = fault.Errorf(fault.InvalidInput, op, fmt.Sprintf("%q", s), hint, "%s", why)
	}
	return p, err
}

// filePlace reads a place that has to be a file.
func filePlace(s string) (place, error) {
	return placeIn("read place", s, "not a file", "name an archive: FILE.tar, or FILE.tar.parts", inFile)
}

// localPlace reads a place that has to be on this host.
func localPlace(op, s string) (place, error) {
	return placeIn(op, s, "in a registry already", "name FILE.tar or oci:DIR", inFile, inFolder, inStream)
}

// registryPlace reads a place that has to be a repository of a registry, with a tag or without.
func registryPlace(op, s string) (place, error) {
	p, err := placeIn(op, s, "not a repository of a registry",
		"write HOST/REPOSITORY:TAG with the registry's host name (and port)", inRegistry)
	if err != nil {
		return p, err
	}
	return p, p.writable()
}

// writable refuses a place that cannot be written to.
func (p place) writable() error {
	if p.reference.Digest().IsZero() {
		return nil
	}
	return fault.Errorf(fault.InvalidInput, "write to", p.reference.String(),
		"name a tag: "+p.reference.Repository()+":TAG", "a digest is what comes out, it cannot be chosen")
}
