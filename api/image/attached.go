package image

import "strings"

// Suffix ends a tag under which something about an image is kept beside it.
type Suffix string

// Suffixes that registries and tools know.
const (
	// ReferrersList is the index that stands in for the referrers API where a registry
	// has none (OCI distribution specification 1.1, "Referrers Tag Schema"): no suffix.
	ReferrersList Suffix = ""
	// Signatures, Attestations and SBOMs are cosign's.
	Signatures   Suffix = ".sig"
	Attestations Suffix = ".att"
	SBOMs        Suffix = ".sbom"
)

// CosignSuffixes are those under which cosign keeps what is about an image.
func CosignSuffixes() []Suffix { return []Suffix{Signatures, Attestations, SBOMs} }

// TagOf returns the tag under which something about a digest is kept: sha256-HEX and
// the suffix.
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
