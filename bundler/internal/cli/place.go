package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

type locationKind int

const (
	inFile locationKind = iota
	inFolder
	inRegistry
	inStream
)

// location is where a bundle is: FILE.tar[.parts], oci:DIR, REGISTRY/REPO[:TAG|@DIGEST], or - (stdin, stdout).
type location struct {
	store     locationKind
	path      string          // of a file or directory
	reference image.Reference // in a registry
}

// String returns the location as users write it.
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

// parseLocation parses a location. A file ends in .tar or .parts, or starts as a path. A registry's host has a dot or
// a port, or is localhost, so that a mistyped file name never names a Docker Hub repository.
func parseLocation(s string) (location, error) { return hintedLocation(s, locationHint) }

func hintedLocation(s, hint string) (location, error) {
	bad := func(why string) (location, error) {
		return location{}, fault.Errorf(fault.InvalidInput, "read place", fmt.Sprintf("%q", s), hint, "%s", why)
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

// locationIn parses a location of certain kinds; why is for others, hint for all that is wrong.
func locationIn(op, s, why, hint string, kinds ...locationKind) (location, error) {
	p, err := hintedLocation(s, hint)
	if err == nil && !slices.Contains(kinds, p.store) {
		err = fault.Errorf(fault.InvalidInput, op, fmt.Sprintf("%q", s), hint, "%s", why)
	}
	return p, err
}

func fileLocation(s string) (location, error) {
	return locationIn("read place", s, "not a file", "name an archive: FILE.tar, or FILE.tar.parts", inFile)
}

// localLocation parses a location that must be on this host.
func localLocation(op, s string) (location, error) {
	return locationIn(op, s, "in a registry already", "name FILE.tar or oci:DIR", inFile, inFolder, inStream)
}

// registryLocation parses a location that must be a repository, with or without a tag.
func registryLocation(op, s string) (location, error) {
	p, err := locationIn(op, s, "not a repository of a registry",
		"write HOST/REPOSITORY:TAG with the registry's host name (and port)", inRegistry)
	if err != nil {
		return p, err
	}
	return p, p.writable()
}

// writable returns a fault if the location is read-only.
func (p location) writable() error {
	if p.reference.Digest().IsZero() {
		return nil
	}
	return fault.Errorf(fault.InvalidInput, "write to", p.reference.String(),
		"name a tag: "+p.reference.Repository()+":TAG", "a digest is what comes out, it cannot be chosen")
}
