package driverbundle

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// fresh refuses a bundle with an expired matrix, or one older than one accepted before. It allows the accepted
// digest, and the one in spec.acceptOlder.
func fresh(b *v1alpha1.DriverBundle, digest string, m *v1alpha1.MatrixStatus, now time.Time) error {
	if b.Spec.AcceptOlder == digest || b.Status.Digest == digest {
		return nil
	}
	err := freshness(b, m, b.Status.HighestSerial, now)
	if err == nil {
		return nil
	}
	hint := "push a bundle with a newer matrix, or accept this one: spec.acceptOlder: " + digest
	if fault.ReasonOf(err) == fault.Superseded {
		hint += wrongSerial(b, b.Status.HighestSerial)
	}
	return &fault.Error{Reason: fault.ReasonOf(err), Op: "check", Subject: "the matrix", Hint: hint, Err: err}
}

// moved reports whether the reference names another repository than the accepted bundle's, with serials of its own.
func moved(b *v1alpha1.DriverBundle) bool {
	ref, err := image.ParseReference(b.Spec.Reference)
	return err == nil && ref.Repository() != b.Status.Repository
}

// freshness returns why a matrix is not fresh, in a repository with that highest serial.
func freshness(b *v1alpha1.DriverBundle, m *v1alpha1.MatrixStatus, highest int64, now time.Time) error {
	const newer = "push a bundle with a newer matrix"
	switch {
	case m.Serial < highest:
		return fault.Errorf(fault.Superseded, "", "", newer+wrongSerial(b, highest),
			"its serial %d is lower than %d, the highest one accepted, which Secret %s/%s has", m.Serial, highest,
			b.Namespace, v1alpha1.SerialsName)
	case !now.Before(m.Expires.Time):
		return fault.Errorf(fault.Expired, "", "", newer, "it expired at %s", m.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// wrongSerial returns the remedy for a wrong highest serial, "" if the accepted bundle itself has that serial.
func wrongSerial(b *v1alpha1.DriverBundle, highest int64) string {
	if m := b.Status.Matrix; m != nil && !moved(b) && m.Serial >= highest {
		return ""
	}
	return "; if the higher serial is wrong: " + v1alpha1.ForgetSerials(b.Namespace)
}

// inspect returns the part of the status about the matrix and releases of a bundle.
func inspect(c *bundle.Contents) (s v1alpha1.DriverBundleStatus, err error) {
	doc, err := matrix.Parse("matrix of the bundle", c.Matrix)
	if err != nil {
		return s, err
	}
	if doc.Serial != c.Lock.Matrix.Serial {
		return s, fault.Errorf(fault.Corrupt, "read", "the bundle",
			"make the bundle again with `vdo-bundle pull`", "%w", errSerial)
	}
	s.Matrix = &v1alpha1.MatrixStatus{
		Serial: doc.Serial, Issued: metav1.NewTime(doc.Issued), Expires: metav1.NewTime(doc.Expires),
		Digest: c.Lock.Matrix.Digest.String(),
	}
	inside := releasesInside(doc, c.Lock)
	for _, r := range inside[:min(len(inside), maxReleases)] {
		s.Releases = append(s.Releases, v1alpha1.ReleaseStatus{
			Driver: string(r.Driver), Version: r.Version.String(), State: string(r.State),
			Kubernetes: r.Kubernetes.String(), VSphere: r.VSphere.String(),
		})
	}
	s.Kubernetes = condition.Cut(covered(inside), maxStatusText)
	return s, nil
}

const (
	// They bound the status, however many releases a bundle has.
	maxReleases   = 256
	maxStatusText = 1 << 10
)

// releasesInside returns the releases of the matrix that are in the lock, in its order.
func releasesInside(doc *matrix.Document, lock *bundle.Lock) []matrix.Release {
	var out []matrix.Release
	for _, l := range lock.Releases {
		if r, ok := doc.Release(matrix.ReleaseID{Driver: l.Driver, Version: l.Version}); ok {
			out = append(out, r)
		}
	}
	return out
}

// covered returns the Kubernetes minors with drivers, as "1.32, 1.33, 1.36". They need a CPI and a CSI that are not
// withdrawn, if the bundle has any of each.
func covered(releases []matrix.Release) string {
	of := map[matrix.Driver][]matrix.Minor{}
	for _, r := range releases {
		if r.Driver == matrix.CPI || r.Driver == matrix.CSI {
			of[r.Driver] = append(of[r.Driver], minors(r)...)
		}
	}
	var all []string
	in := slices.SortedFunc(slices.Values(slices.Concat(of[matrix.CPI], of[matrix.CSI])), matrix.Minor.Compare)
	for _, m := range slices.Compact(in) {
		lacks := func(d matrix.Driver) bool {
			minors, is := of[d]
			return is && !slices.Contains(minors, m)
		}
		if !lacks(matrix.CPI) && !lacks(matrix.CSI) {
			all = append(all, m.String())
		}
	}
	return strings.Join(all, ", ")
}

const maxMinors = 64 // bounds the list of one range

// minors returns the minors of a release's range, of an open range only the first.
func minors(r matrix.Release) []matrix.Minor {
	if r.State == matrix.Withdrawn {
		return nil
	}
	if r.Kubernetes.Max.IsZero() {
		return []matrix.Minor{r.Kubernetes.Min}
	}
	var out []matrix.Minor
	for m := r.Kubernetes.Min; r.Kubernetes.Contains(m) && len(out) < maxMinors; m = m.Next() {
		out = append(out, m)
	}
	return out
}
