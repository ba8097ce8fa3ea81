package image

import "strings"

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
