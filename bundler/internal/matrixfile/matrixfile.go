// Package matrixfile opens a compatibility matrix for a flow: the unchanged bytes, the publisher's
// signature, and the parsed document, checked against the caller's rules. An expired or untrusted
// document is a fault beside the document, so that callers can report all faults.
//
//	m, err := matrixfile.Open("matrix.yaml", data, signature, matrixfile.Rules{Policy: policy}, now)
package matrixfile

import (
	"fmt"
	"maps"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// File is a parsed matrix document.
type File struct {
	Name      string // file, for messages
	Data      []byte
	Signature []byte // nil if there is none
	Document  *matrix.Document
	Verified  trust.Verified // by the rules' policy, if any
}

// Rules are the requirements for a matrix.
type Rules struct {
	Policy       *trust.Policy // nil: the signature is not checked
	AllowExpired bool
}

// Open parses a document and checks it against rules.
func Open(name string, data, signature []byte, rules Rules, now time.Time) (File, error) {
	doc, err := matrix.Parse(name, data)
	if err != nil {
		return File{}, err
	}
	m := File{Name: name, Data: data, Signature: signature, Document: doc}
	err = fault.Join(m.checkSignature(rules, now), checkExpiry(m, rules.AllowExpired, now))
	return m, err
}

func (m *File) checkSignature(rules Rules, now time.Time) error {
	if rules.Policy == nil {
		return nil
	}
	if len(m.Signature) == 0 {
		return fault.Errorf(fault.Untrusted, "verify matrix", m.Name,
			"lock and pull with --matrix FILE, the publisher's signature beside it as FILE.sig (`vdo-bundle matrix sign --key KEY` makes one)",
			"there is no signature of it")
	}
	var err error
	if m.Verified, err = rules.Policy.VerifyBlob(m.Data, m.Signature, now); err != nil {
		return fault.Errorf(fault.Untrusted, "verify matrix", m.Name,
			"get the document and its signature from its publisher again, or give the publisher's key; "+
				"after an edit of your own, sign it with `vdo-bundle matrix sign --replace`", "%w", err)
	}
	return nil
}

func checkExpiry(m File, allow bool, now time.Time) error {
	if allow || now.Before(m.Document.Expires) {
		return nil
	}
	return fault.Errorf(fault.Expired, "check matrix", m.Name,
		"get a newer document from its publisher, or accept this one with --allow-expired", "serial %d expired on %s",
		m.Document.Serial, m.Document.Expires.UTC().Format(time.DateOnly))
}

// Ref returns the document's entry in a lock.
func (m File) Ref() bundle.MatrixRef {
	return bundle.MatrixRef{Serial: m.Document.Serial, Digest: image.DigestOf(m.Data), Size: int64(len(m.Data))}
}

// Fits checks that a lock was made from m and agrees with it. Another matrix would differ in each release.
func (m File) Fits(lock *bundle.Lock) error {
	if got, ref := m.Ref(), lock.Matrix; got != ref {
		return fault.Errorf(fault.Conflict, "check matrix", m.Name,
			"name the lock's document with --matrix FILE, or make a new lock with `vdo-bundle lock`",
			"is serial %d with digest %s, the lock was made from serial %d with digest %s", got.Serial, got.Digest,
			ref.Serial, ref.Digest)
	}
	return Agree(lock, m.Document, nil)
}

// Agree checks that a lock agrees with its matrix and, given the manifest files, holds every image in them. The
// operator's may have any name.
func Agree(lock *bundle.Lock, doc *matrix.Document, files catalog.Files) error {
	var problems []error
	for _, r := range lock.Releases {
		listed, _ := doc.Release(matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
		rules := listed.Images
		if r.Driver == bundle.Operator {
			for from, to := range r.Images {
				rules = append(rules, matrix.ImageOverride{From: from, To: to})
			}
		} else if why := differs(r, listed, doc); why != "" {
			problems = append(problems,
				fault.Errorf(fault.Corrupt, "check lock", r.ID(), "make a new lock with `vdo-bundle lock`", "%s", why))
		}
		if files != nil {
			problems = append(problems, catalog.Agree(r, rules, files))
		}
	}
	return fault.Join(problems...)
}

// differs says how a lock's release differs from what the matrix lists; "" if it does not.
func differs(r bundle.Release, listed matrix.Release, doc *matrix.Document) string {
	if r.Driver == bundle.JumpHost {
		return ""
	}
	service, isService := doc.Service(matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
	if listed.Driver != r.Driver && !isService {
		return "the matrix does not list it"
	}
	ref, err := image.ParseReference(service.Image)
	if isService && (err != nil || ref.String() != r.Images[service.Image]) {
		return "its image is not that of the matrix"
	}
	is, want := map[string]string{}, map[string]string{}
	for _, f := range r.Manifests {
		is[f.Name] = fmt.Sprint(f.Size, " ", f.Digest.Hex())
	}
	for _, m := range listed.Manifests {
		want[m.Name] = fmt.Sprint(m.Size, " ", m.SHA256)
	}
	if !maps.Equal(is, want) {
		return "its manifest files are not those of the matrix"
	}
	return ""
}
