package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// locationKind is what kind of place it is.
type locationKind int

const (
	inFile locationKind = iota
	inFolder
	inRegistry
	inStream
)

// location is where a bundle is, or will be: FILE.tar, FILE.tar.parts, oci:DIR,
// REGISTRY/REPO[:TAG|@DIGEST], or - for standard input and output.
type location struct {
	store     locationKind
	path      string          // of a file or folder
	reference image.Reference // in a registry
}

// String writes the place as it is given.
func (p location) String() string {
	switch p.store {
	case inFolder:
		return "oci:" + p.path
	case inRegistry:
		return p.reference.String()
	case inStream:
		return "-"
	}
	return p.path
}

const locationHint = "write FILE.tar or ./FILE for an archive, oci:DIR for a folder, or HOST/REPOSITORY:TAG with the registry's host name (and port) for a registry"

// parseLocation reads a place. What ends in .tar or .parts, or starts as a path, is a file.
// A registry's host has a dot or a port, or is localhost, so that a mistyped file
// name is never taken for a repository of Docker Hub.
func parseLocation(s string) (location, error) {
	bad := func(why string) (location, error) {
		return location{}, fault.Errorf(fault.InvalidInput, "read place", fmt.Sprintf("%q", s), locationHint, "%s", why)
	}
	if dir, ok := strings.CutPrefix(s, "oci:"); ok {
		if dir == "" {
			return bad("missing folder after oci:")
		}
		return location{store: inFolder, path: dir}, nil
	}
	if s == "-" {
		return location{store: inStream}, nil
	}
	host, _, slash := strings.Cut(s, "/")
	switch {
	case strings.HasSuffix(s, ".tar") || strings.HasSuffix(s, parts.Suffix) || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../"):
		return location{store: inFile, path: s}, nil
	case strings.Contains(s, "://"):
		return bad("a registry is named without a scheme")
	case !slash:
		return bad("not a .tar file, and not a registry reference")
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return bad(fmt.Sprintf("not a registry reference: %q has no dot and no port", host))
	}
	ref, err := image.ParseReference(s)
	if err != nil {
		return location{}, err
	}
	return location{store: inRegistry, reference: ref}, nil
}

// locationIn reads a place that has to be of some kinds; why and hint are for others.
func locationIn(op, s, why, hint string, kinds ...locationKind) (location, error) {
	p, err := parseLocation(s)
	if err == nil && !slices.Contains(kinds, p.store) {
		err = fault.Errorf(fault.InvalidInput, op, fmt.Sprintf("%q", s), hint, "%s", why)
	}
	return p, err
}

// fileLocation reads a place that has to be a file.
func fileLocation(s string) (location, error) {
	return locationIn("read place", s, "not a file", "name an archive: FILE.tar, or FILE.tar.parts", inFile)
}

// localLocation reads a place that has to be on this host.
func localLocation(op, s string) (location, error) {
	return locationIn(op, s, "in a registry already", "name FILE.tar or oci:DIR", inFile, inFolder, inStream)
}

// registryLocation reads a place that has to be a repository of a registry, with a tag or without.
func registryLocation(op, s string) (location, error) {
	p, err := locationIn(op, s, "not a repository of a registry",
		"write HOST/REPOSITORY:TAG with the registry's host name (and port)", inRegistry)
	if err != nil {
		return p, err
	}
	return p, p.writable()
}

// writable refuses a place that cannot be written to.
func (p location) writable() error {
	if p.reference.Digest().IsZero() {
		return nil
	}
	return fault.Errorf(fault.InvalidInput, "write to", p.reference.String(),
		"name a tag: "+p.reference.Repository()+":TAG", "a digest is what comes out, it cannot be chosen")
}
