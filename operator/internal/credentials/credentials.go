// Package credentials reads the account and the CA certificates of a VsphereCloudConfig: its Secret and its spec.ca.
//
//	read, err := credentials.Read(ctx, reader, vcc) // the current content, and its version
//	known, ok := read.Verified(vcc)                 // whether the vCenter accepted exactly this
//
// The check of the vCenter and the drivers' configuration both read through it, so both mean the same by a version. A
// [Verified] value exists only for credentials that a check succeeded with. So an untested password never gets into
// the drivers' configuration, where several drivers would try it at once and lock the account.
package credentials

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// Fallback is the second namespace where [Read] looks for the Secret: the earlier operator read it there.
const Fallback = metav1.NamespaceSystem

// EndsAnnotation on a Secret has an account, and the day on which the password ends that vdoctl gave it.
const EndsAnnotation = "vdo.vmware.com/password-ends"

// defaultCAKey is the key of a CA if the reference names none.
const defaultCAKey = "ca.crt"

// Credentials are the account and the CA that a VsphereCloudConfig refers to. They print as "[redacted]".
type Credentials struct {
	Username, Password string
	CA                 []byte    // PEM; nil if spec.ca is not set
	Ends               time.Time // of the password; zero if unknown or never
	// Version identifies the objects read: UID and resource version of the Secret, then of the CA's object.
	Version string
	// Elsewhere is set if the resource's namespace has no such Secret: the operator does not watch kube-system.
	Elsewhere bool
}

// String keeps credentials out of logs.
func (Credentials) String() string { return "[redacted]" }

// GoString keeps credentials out of logs.
func (Credentials) GoString() string { return "[redacted]" }

// Verified are credentials that the vCenter accepted. Only [Credentials.Verified] makes them.
type Verified struct{ Credentials }

// Verified returns the credentials as verified, and whether a check of the current resource succeeded with exactly
// these.
func (c Credentials) Verified(vcc *v1alpha1.VsphereCloudConfig) (Verified, bool) {
	st := &vcc.Status
	before := st.VerifiedCredentials == c.Version && st.ObservedGeneration == vcc.Generation // before v0.1
	if c.Version == "" || !before && st.VerifiedCredentials != c.Version+Checked(vcc) {
		return Verified{}, false
	}
	return Verified{c}, true
}

// Checked follows the version in status.verifiedCredentials: a hash of all else that a check depends on.
func Checked(vcc *v1alpha1.VsphereCloudConfig) string {
	s := &vcc.Spec
	text := fmt.Sprintf("%q %d %t %q ", s.VcIP, s.Port, s.Insecure, s.Thumbprint) +
		fmt.Sprintf("%q %q", s.Datacenters, s.AcceptInstanceUUID)
	return fmt.Sprintf(" %.8x", sha256.Sum256([]byte(text)))
}

// Read reads the Secret and the CA. The version is valid beside an error too, so that the caller does not take the
// same broken Secret for a changed one.
func Read(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (Credentials, error) {
	var out Credentials
	secret, errSecret := out.account(ctx, c, vcc)
	out.Version = secret.Version
	out.Username = value(secret, corev1.BasicAuthUsernameKey)
	out.Password = value(secret, corev1.BasicAuthPasswordKey)
	day, _ := strings.CutPrefix(secret.Annotations[EndsAnnotation], out.Username+" ") // else of another account
	out.Ends, _ = time.Parse(time.DateOnly, day)
	ca, errCA := CA(ctx, c, vcc)
	if out.CA = ca.Bytes; vcc.Spec.CA != nil {
		out.Version += " " + ca.Version
	}
	return out, fault.Join(errSecret, errCA)
}

// CA reads the CA alone; nothing if spec.ca is not set.
func CA(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (source.Value, error) {
	if vcc.Spec.CA == nil {
		return source.Value{}, nil
	}
	return source.Key(ctx, c, source.Desired{Namespace: vcc.Namespace, Ref: *vcc.Spec.CA, Default: defaultCAKey,
		Hint: "put the CA certificates there in PEM, or correct spec.ca"})
}

// PutBack is the hint about a lost Secret, whose account the drivers still have.
const PutBack = "put that account and its password back into the Secret: they are in the Secrets of the drivers' own namespace"

// account reads the Secret from the resource's namespace, else from kube-system.
func (c *Credentials) account(
	ctx context.Context, api client.Reader, vcc *v1alpha1.VsphereCloudConfig,
) (source.Data, error) {
	for _, ns := range []string{vcc.Namespace, Fallback} {
		ref := v1alpha1.KeyReference{Secret: vcc.Spec.Credentials}
		d, err := source.Read(ctx, api, ns, ref)
		if err == nil {
			return d, nil
		}
		if !apierrors.IsNotFound(err) {
			return source.Data{}, unread(source.Subject(ns, ref), err)
		}
		c.Elsewhere = true
	}
	return source.Data{}, &fault.Error{
		Reason: fault.NotFound, Op: "read the credentials of", Subject: vcc.Spec.VcIP,
		Err: fmt.Errorf("there is no Secret %s in %s or %s", vcc.Spec.Credentials, vcc.Namespace, Fallback),
		Hint: fmt.Sprintf("create it: kubectl -n %s create secret generic %s --type kubernetes.io/basic-auth --from-literal username=NAME@DOMAIN --from-literal password=…; if drivers run, "+PutBack,
			vcc.Namespace, vcc.Spec.Credentials)}
}

// value returns the value of a key, without the line end that an editor or echo adds.
func value(d source.Data, key string) string {
	return strings.TrimRight(string(d.Values[key]), "\r\n")
}

// unread returns the fault of an object that could not be read. Forbidden does not pass by itself.
func unread(subject string, err error) error {
	f := &fault.Error{Reason: fault.Internal, Op: "read", Subject: subject, Err: err}
	if apierrors.IsForbidden(err) {
		f.Reason, f.Hint = fault.Forbidden, "grant that account the permission to read it; `vdoctl deploy BUNDLE` grants the operator its own"
	}
	return f
}
