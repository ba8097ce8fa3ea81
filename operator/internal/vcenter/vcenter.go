// Package vcenter asks a vCenter who it is and whether an account can use it.
//
// [Check] opens one session, asks, and logs out, whatever happens in between:
//
//  1. the TLS handshake, with the one rule of the [Target]: a thumbprint, CA
//     certificates, no check at all, or the system's roots (see [Trust]);
//  2. before any password is sent: that a vCenter answers there (neither an ESXi
//     host nor another web server), of a version that the drivers work with, and the
//     one that is meant;
//  3. the login: by a saved session, a token, a certificate or the password;
//  4. the datacenters, all read in one batch.
//
// Each way to fail is a [fault.Error] of its own reason with its remedy. A fault
// comes with what was found out until then, so that a wrong password does not hide
// the version. Nothing of the password is ever part of an error or a Report.
//
// [Inspect] goes on from there, in the same session, and reads what the checks of package
// preflight look at. How often it asks does not depend on how many nodes there are: VMs
// are read in pages of [pageSize], by one view over the inventory and one look at those
// that may be nodes, privileges and tags in batches as large. The tags' API has sessions of
// its own: it is logged in to once, with what was accepted a moment before.
//
// [Open] is such a session for who changes a vCenter.
package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

const (
	defaultPort    = 443
	defaultTimeout = 30 * time.Second
	logoutTimeout  = 10 * time.Second
)

// Target is a vCenter and the account to use.
type Target struct {
	Host     string // name or IP address, without port
	Port     int    // default 443
	Username string
	Password Password
	Given    string // what the account and password are given by, for hints; default: the Secret that spec.credentials names
	Trust    Trust
	// In the place of the password: a token of single sign-on (SAML), which Certificate may have to
	// prove; Certificate alone, for a token; or a session that is saved in this directory, as govc
	// does, where the session is saved too.
	Token       Password
	Certificate *tls.Certificate `json:"-"`
	Sessions    string

	Datacenters []string      // paths of datacenters that have to be there; empty asks for none in particular
	Timeout     time.Duration // of the whole check, but for what it waits in Turn; default 30 s
	// Turn makes the login, and nothing else, when it is its turn: the vCenter is reached and
	// known to be one by then. Where it returns an error without a login, that is the answer.
	// nil: at once.
	Turn func(ctx context.Context, login func() error) error `json:"-"`
	// Wrap wraps the transport of all requests; nil: none.
	Wrap func(http.RoundTripper) http.RoundTripper `json:"-"`
	// InstanceUUIDs are those of the vCenters that may be logged in to; empty allows any.
	InstanceUUIDs []string
}

// TargetOf is the vCenter of a resource, with the account and the CA that it names.
func TargetOf(v *v1alpha1.VsphereCloudConfig, username, password string, ca []byte) Target {
	return Target{
		Host: v.Spec.VcIP, Port: int(v.Spec.Port), Username: username, Password: Password(password),
		Trust:       Trust{Insecure: v.Spec.AnyCertificate(), Thumbprint: v.Spec.Thumbprint, CA: ca},
		Datacenters: v.Spec.DatacenterNames(), InstanceUUIDs: v.InstanceUUIDs(),
	}
}

// Password is a string that does not print.
type Password string

// String hides the password.
func (Password) String() string { return "(hidden)" }

// GoString hides the password.
func (Password) GoString() string { return "(hidden)" }

// MarshalText hides the password.
func (Password) MarshalText() ([]byte, error) { return []byte("(hidden)"), nil }

// Address is host:port.
func (t Target) Address() string {
	return net.JoinHostPort(t.Host, strconv.Itoa(cmp.Or(t.Port, defaultPort)))
}

// passwordless reports whether a token takes the place of the password.
func (t Target) passwordless() bool { return t.Token != "" || t.Certificate != nil }

// Report is what was found.
type Report struct {
	Version      string // as the vCenter names it: 8.0.3
	APIVersion   string // 8.0.3.0
	Build        string
	InstanceUUID string
	Thumbprint   string    // SHA-1 of the certificate served, in the form that the drivers take
	Expires      time.Time // of that certificate
	User         string    // the account as the vCenter names it
	Datacenters  []string  // inventory paths that the account sees, sorted
	Missing      []string  // of those asked for, as they were written
}

// Check asks the vCenter. The report holds what was found before the fault.
func Check(ctx context.Context, t Target) (Report, error) {
	i := newInspection(t, Ask{}, defaultTimeout)
	defer i.Close()
	if err := i.enter(ctx); err != nil {
		return i.report, err
	}
	i.report.User = i.User
	return i.report, i.spend(ctx, func(ctx context.Context) error { return i.look(ctx, treeKinds) })
}
