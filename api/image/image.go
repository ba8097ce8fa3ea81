// Package image has the names of container images: digests, references, platforms, and two ways to
// turn a reference into another one.
//
// Only parsers create values, so every value is well formed:
//
//	ref, err := image.ParseReference("registry.k8s.io/csi-vsphere/driver:v3.5.1")
//	ref.Host()       // registry.k8s.io
//	ref.Path()       // csi-vsphere/driver
//	ref.Tag()        // v3.5.1
//	ref.Pin(digest)  // registry.k8s.io/csi-vsphere/driver@sha256:…
//
// References are normalised as container runtimes do it. A name without a host is on docker.io. A
// docker.io name of one component is under library/. A reference with neither tag nor digest has
// the tag "latest".
//
// This package has its own parser, since the libraries' parsers differ from registries. The one of
// go-containerregistry accepts "a//b" and "a/../b", which no registry takes. It also refuses paths
// of more than 255 characters, which a path below a mirror may have. The one of oras-go knows no
// short names. Both accept port 99999. A test compares all three.
//
// [Relocate] moves references from registries that no longer exist to the image's current location.
// [SourceMap] changes where images are fetched from, without changing their names.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Digest is a sha256 content digest. The zero value is no digest.
type Digest struct{ hex string }

var hexDigest = regexp.MustCompile(`^[a-f0-9]{64}$`)

// ParseDigest reads "sha256:" and 64 lower-case hex digits. It refuses other algorithms.
func ParseDigest(s string) (Digest, error) {
	h, ok := strings.CutPrefix(s, "sha256:")
	if !ok || !hexDigest.MatchString(h) {
		return Digest{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse digest", Subject: fmt.Sprintf("%q", s),
			Hint: "a digest is sha256: and 64 lower-case hex digits",
		}
	}
	return Digest{h}, nil
}

// MustDigest is ParseDigest for constants in code and tests; it panics on errors.
func MustDigest(s string) Digest {
	d, err := ParseDigest(s)
	if err != nil {
		panic(err)
	}
	return d
}

// DigestOf returns the digest of data.
func DigestOf(data []byte) Digest {
	sum := sha256.Sum256(data)
	return Digest{hex.EncodeToString(sum[:])}
}

// String returns "sha256:…", or "" for the zero value.
func (d Digest) String() string {
	if d.hex == "" {
		return ""
	}
	return "sha256:" + d.hex
}

// Hex returns the 64 hex digits, or "".
func (d Digest) Hex() string { return d.hex }

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d.hex == "" }

// MarshalText returns String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDigest; empty text is the zero value.
func (d *Digest) UnmarshalText(text []byte) error { return unmarshal(d, text, ParseDigest) }

func unmarshal[T any](to *T, text []byte, parse func(string) (T, error)) (err error) {
	if *to = *new(T); len(text) > 0 {
		*to, err = parse(string(text))
	}
	return err
}

// Reference names an image: host, path, and a tag, a digest, or both.
// The zero value names nothing.
type Reference struct {
	host, path, tag string
	digest          Digest
}

var (
	hostForm = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:.]+\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$`)
	pathForm = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

const maxReference = 1024 // longer than any registry accepts

// ParseReference reads [HOST/]PATH[:TAG][@DIGEST] and normalises it.
func ParseReference(s string) (Reference, error) {
	bad := func(format string, args ...any) (Reference, error) {
		return Reference{}, fault.Errorf(fault.InvalidInput, "parse image reference", fmt.Sprintf("%q", s),
			"write it as HOST/PATH:TAG or HOST/PATH@sha256:…", format, args...)
	}
	if len(s) > maxReference {
		return bad("longer than 1024 characters")
	}
	var r Reference
	rest := s
	if name, dig, ok := strings.Cut(rest, "@"); ok {
		d, err := ParseDigest(dig)
		if err != nil {
			return bad("what follows @ is not a sha256 digest")
		}
		r.digest, rest = d, name
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		r.tag, rest = rest[i+1:], rest[:i]
		if !tagForm.MatchString(r.tag) {
			return bad("%q is not a tag", r.tag)
		}
	}
	r.host, r.path = splitHost(rest)
	switch {
	case rest == "":
		return bad("there is no name")
	case !hostForm.MatchString(r.host):
		return bad("%q is not a registry host", r.host)
	case !pathForm.MatchString(r.path):
		return bad("%q is not a repository path: lower-case letters, digits and . _ - between slashes", r.path)
	}
	if r.tag == "" && r.digest.IsZero() {
		r.tag = "latest"
	}
	return r, nil
}

// ParseHosted reads a reference that must name its registry: a host has a dot or a port, or is localhost.
// Container runtimes would read a name without one as Docker Hub's, which isolated sites never mean.
func ParseHosted(s string) (Reference, error) {
	host, _, slash := strings.Cut(s, "/")
	if !slash || !isHost(host) {
		why := "it names no registry"
		if slash {
			why += fmt.Sprintf(": %q has no dot and no port", host)
		}
		return Reference{}, fault.Errorf(fault.InvalidInput, "read reference", fmt.Sprintf("%q", s),
			"write the registry's host name, and port, before it: registry.site/vdo/drivers:1", "%s", why)
	}
	return ParseReference(s)
}

// splitHost splits a name as container runtimes do: the first component is a host if it has a dot
// or a colon or is "localhost".
func splitHost(name string) (host, path string) {
	first, rest, ok := strings.Cut(name, "/")
	if ok && isHost(first) {
		host, path = first, rest
	} else {
		host, path = "docker.io", name
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") && path != "" {
		path = "library/" + path
	}
	return host, path
}

// isHost reports whether references read a first component as a host.
func isHost(name string) bool { return strings.ContainsAny(name, ".:") || name == "localhost" }

// MustReference is ParseReference for constants in code and tests; it panics on errors.
func MustReference(s string) Reference {
	r, err := ParseReference(s)
	if err != nil {
		panic(err)
	}
	return r
}

// Host returns the registry's host and optional port.
func (r Reference) Host() string { return r.host }

// Path returns the repository's path without the host.
func (r Reference) Path() string { return r.path }

// Repository returns host/path.
func (r Reference) Repository() string {
	if r.host == "" {
		return ""
	}
	return r.host + "/" + r.path
}

// Tag returns the tag, or "".
func (r Reference) Tag() string { return r.tag }

// Digest returns the digest, or the zero value.
func (r Reference) Digest() Digest { return r.digest }

// IsZero reports whether the reference names nothing.
func (r Reference) IsZero() bool { return r.host == "" }

// String returns the reference in full, host first.
func (r Reference) String() string {
	s := r.Repository()
	if r.tag != "" {
		s += ":" + r.tag
	}
	if !r.digest.IsZero() {
		s += "@" + r.digest.String()
	}
	return s
}

// Identifier returns the identifier in a registry's API: the digest, or else the tag.
func (r Reference) Identifier() string {
	if !r.digest.IsZero() {
		return r.digest.String()
	}
	return r.tag
}

// Pin returns the repository at a digest, without the tag.
func (r Reference) Pin(d Digest) Reference {
	return Reference{host: r.host, path: r.path, digest: d}
}

// At returns the reference with a digest, and with its tag.
func (r Reference) At(d Digest) Reference {
	r.digest = d
	return r
}

// WithTag returns the repository at a tag, without the digest.
func (r Reference) WithTag(tag string) (Reference, error) {
	return ParseReference(r.Repository() + ":" + tag)
}

// MarshalText returns String.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseReference; empty text is the zero value.
func (r *Reference) UnmarshalText(text []byte) error { return unmarshal(r, text, ParseReference) }

// Below returns the location of an image in a mirror that keeps upstream's paths: the mirror's
// repository, the upstream host, then the upstream path. Tag and digest stay. A host's port becomes
// _PORT, since paths have no colons.
//
//	registry.k8s.io/csi-vsphere/driver:v3.5.1 below registry.site/vdo/drivers is
//	registry.site/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1
func (r Reference) Below(mirror Reference) (Reference, error) {
	out := Reference{host: mirror.host, path: mirror.path + "/" + HostPath(r.host) + "/" + r.path, tag: r.tag, digest: r.digest}
	if !pathForm.MatchString(out.path) || len(out.String()) > maxReference {
		return Reference{}, fault.Errorf(fault.InvalidInput, "mirror image", r.String(),
			"name a mirror with a shorter path, or an image whose host is a DNS name", "%.200q is not a repository path", out.path)
	}
	return out, nil
}

// HostPath returns a registry's host as one path component.
func HostPath(host string) string {
	return strings.ReplaceAll(strings.ToLower(host), ":", "_")
}

// Suffix ends the tag of a referrer beside its image.
type Suffix string

// Suffixes that registries and tools know.
const (
	// ReferrersList has no suffix: it is the index that replaces the referrers API if a registry
	// has none (OCI distribution specification 1.1, "Referrers Tag Schema").
	ReferrersList Suffix = ""
	// Signatures, Attestations and SBOMs are cosign's.
	Signatures   Suffix = ".sig"
	Attestations Suffix = ".att"
	SBOMs        Suffix = ".sbom"
)

// CosignSuffixes returns the suffixes of cosign's referrers of an image.
func CosignSuffixes() []Suffix { return []Suffix{Signatures, Attestations, SBOMs} }

// TagOf returns the tag of a digest's referrer: sha256-HEX and the suffix.
func (s Suffix) TagOf(subject Digest) string { return tagPrefix + subject.Hex() + string(s) }

const tagPrefix = "sha256-"

// ParseAttachedTag reads such a tag, of any suffix; ok is false for other tags.
func ParseAttachedTag(tag string) (subject Digest, s Suffix, ok bool) {
	rest, ok := strings.CutPrefix(tag, tagPrefix)
	if !ok {
		return Digest{}, "", false
	}
	hex, end, dotted := strings.Cut(rest, ".")
	if !hexDigest.MatchString(hex) {
		return Digest{}, "", false
	}
	if dotted {
		s = Suffix("." + end)
	}
	return Digest{hex}, s, true
}
