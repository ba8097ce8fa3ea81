package provenance

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Fits holds a statement against the lock: it is of such a build, and names the lock,
// the matrix, and each manifest file and image with its digest, and nothing else.
func (s Statement) Fits(lock *bundle.Lock) error {
	def := s.BuildDefinition
	if def.BuildType != BuildType {
		return fmt.Errorf("it is of a build of type %.120q, not %s", def.BuildType, BuildType)
	}
	want, err := Describe(lock)
	if err != nil {
		return err
	}
	got, expected := def.ExternalParameters, want.ExternalParameters
	switch {
	case !maps.Equal(got.Lock.Digest, expected.Lock.Digest):
		return fmt.Errorf("its lock: %w", &bundle.DigestError{Expected: expected.Lock.sha256(), Got: got.Lock.sha256()})
	case got.Matrix != expected.Matrix:
		return fmt.Errorf("its matrix has the serial %d, that of the bundle %d", got.Matrix, expected.Matrix)
	case !slices.Equal(got.Releases, expected.Releases):
		return errors.New("it lists other releases")
	}
	return sameDependencies(def.ResolvedDependencies, want.ResolvedDependencies)
}

func (r Resource) sha256() digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, r.Digest["sha256"])
}

func sameDependencies(got, want []Resource) error {
	named := func(in []Resource) map[string]string {
		out := map[string]string{}
		for _, d := range in {
			out[d.Name+" sha256:"+d.Digest["sha256"]] = d.Name
		}
		return out
	}
	has, wants := named(got), named(want)
	var missing, more []string
	for _, k := range slices.Sorted(maps.Keys(wants)) {
		if _, ok := has[k]; !ok {
			missing = append(missing, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(has)) {
		if _, ok := wants[k]; !ok {
			more = append(more, fmt.Sprintf("%.200q", k))
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("it does not name %s", fault.Few(missing, 3))
	case len(more) > 0:
		return fmt.Errorf("it names %s, which the bundle does not have", fault.Few(more, 3))
	}
	return nil
}
