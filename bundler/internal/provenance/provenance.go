// Package provenance builds the SLSA statement of how a bundle was built: by which program, when,
// for which request, and from what. Every byte of a bundle is a dependency in the statement or
// follows from the lock. Callers can therefore check a statement against its bundle's lock:
//
//	err := statement.Fits(lock)
//
// Package api/trust signs and verifies the statement.
package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Type is SLSA's predicate type, and BuildType is how a bundle is built.
const (
	Type      = "https://slsa.dev/provenance/v1"
	BuildType = "https://vdo.vmware.com/bundle/pull/v1"
	builderID = "https://github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/vdo-bundle"
)

// Builder is the program that builds a bundle.
type Builder struct {
	Version  string
	Revision string // of its source; "" if unknown
}

// Statement is the predicate https://slsa.dev/provenance/v1.
type Statement struct {
	BuildDefinition Definition `json:"buildDefinition"`
	RunDetails      struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
		Metadata struct {
			StartedOn string `json:"startedOn"`
		} `json:"metadata"`
	} `json:"runDetails"`
}

// Definition is what was built, and from what.
type Definition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   Parameters `json:"externalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies"`
}

// Parameters are the user's request, fixed by the lock.
type Parameters struct {
	Lock           Resource         `json:"lock"`
	Matrix         int64            `json:"matrixSerial"`
	Platforms      []image.Platform `json:"platforms"`
	Releases       []string         `json:"releases"`
	UpstreamPolicy bool             `json:"upstreamVerified"` // the images' own signatures were checked
}

// Resource is in-toto's resource descriptor.
type Resource struct {
	Name             string            `json:"name,omitempty"`
	URI              string            `json:"uri,omitempty"`
	Digest           map[string]string `json:"digest"`
	DownloadLocation string            `json:"downloadLocation,omitempty"`
	Annotations      map[string]any    `json:"annotations,omitempty"`
}

func sha256Of(d image.Digest) map[string]string { return map[string]string{"sha256": d.Hex()} }

// Image is the origin of an image of the lock.
type Image struct {
	From     image.Reference // where it was fetched
	SignedBy []string        // ids of a policy; none if its signatures were not checked
}

// New returns the statement of a build from a lock. Every byte of the bundle is one of the resolved dependencies or
// derives from the lock. The images are in the order of the lock.
func New(lock *bundle.Lock, by Builder, started time.Time, images []Image) (s Statement, err error) {
	data, err := lock.JSON()
	if err != nil {
		return s, err
	}
	isUnchecked := func(i Image) bool { return len(i.SignedBy) == 0 }
	parameters := Parameters{
		Lock:   Resource{Name: "lock", Digest: sha256Of(image.DigestOf(data))},
		Matrix: lock.Matrix.Serial, Platforms: lock.Platforms, UpstreamPolicy: !slices.ContainsFunc(images, isUnchecked),
	}
	from := []Resource{{Name: "matrix", Digest: sha256Of(lock.Matrix.Digest)}}
	for _, r := range lock.Releases {
		parameters.Releases = append(parameters.Releases, r.ID())
		for _, f := range r.Manifests {
			from = append(from, Resource{Name: r.Path(f), URI: f.URL, Digest: sha256Of(f.Digest)})
		}
	}
	for n, i := range lock.Images {
		r := Resource{Name: i.Reference.String(), URI: "oci://" + i.FetchedFrom().String(), Digest: sha256Of(i.Digest)}
		if at := "oci://" + images[n].From.String(); at != r.URI {
			r.DownloadLocation = at
		}
		if !isUnchecked(images[n]) {
			r.Annotations = map[string]any{"signedBy": images[n].SignedBy}
		}
		from = append(from, r)
	}
	s.BuildDefinition = Definition{BuildType, parameters, from}
	run := &s.RunDetails
	run.Builder.ID, run.Builder.Version = builderID, map[string]string{"vdo-bundle": by.Version}
	if by.Revision != "" {
		run.Builder.Version["revision"] = by.Revision
	}
	run.Metadata.StartedOn = started.UTC().Format(time.RFC3339Nano)
	return s, nil
}

// ServedBy returns the repositories that served images in place of their sources, by image name.
func (s Statement) ServedBy() map[string]string {
	out := map[string]string{}
	for _, d := range s.BuildDefinition.ResolvedDependencies {
		from, ok := strings.CutPrefix(d.DownloadLocation, "oci://")
		if ref, err := image.ParseReference(from); ok && err == nil {
			out[d.Name] = ref.Repository()
		}
	}
	return out
}

// IsOfBuild reports whether predicate has the same dependencies, sources and checks. Time and version may differ.
func (s Statement) IsOfBuild(predicate []byte) bool {
	var other Statement
	if json.Unmarshal(predicate, &other) != nil {
		return false
	}
	ours, err := json.Marshal(s.BuildDefinition)
	theirs, otherErr := json.Marshal(other.BuildDefinition)
	return err == nil && otherErr == nil && bytes.Equal(ours, theirs)
}

// Fits returns an error unless the statement names exactly the lock, by digest. The lock has all else.
func (s Statement) Fits(lock *bundle.Lock) error {
	def := s.BuildDefinition
	if def.BuildType != BuildType {
		return fmt.Errorf("it is of a build of type %.120q, not %s", def.BuildType, BuildType)
	}
	data, err := lock.JSON()
	if err != nil {
		return err
	}
	want, got := digest.FromBytes(data), digest.Digest("sha256:"+def.ExternalParameters.Lock.Digest["sha256"])
	if got != want {
		return fmt.Errorf("its lock: %w", &bundle.DigestError{Expected: want, Got: got})
	}
	return nil
}
