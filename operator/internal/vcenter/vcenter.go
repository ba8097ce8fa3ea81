// Package vcenter reads a vCenter's version and identity, and checks whether an account can use it.
//
// [Check] opens one session, reads, and always logs out:
//
//  1. the TLS handshake, with the one rule of the [Target]: a thumbprint, CA
//     certificates, no check at all, or the system's roots (see [Trust]);
//  2. before any password is sent: the server is a vCenter (neither an ESXi host nor another
//     web server), has a version that the drivers support, and is an accepted one;
//  3. the login: by a saved session, a token, a certificate or the password;
//  4. the datacenters, all read in one batch.
//
// Each failure is a [fault.Error] with its own reason and remedy. It comes with the facts until then, so that a
// wrong password does not hide the version. No error or Report contains any part of the password.
//
// [Inspect] continues in the same session, and reads the facts for package preflight in few requests. It reads VMs
// in pages of [pageSize], by one view of the inventory and one read of those that may be nodes. It reads privileges
// and tags in batches of the same size. The API of tags has its own sessions: [Inspect] logs in to it once, with
// the login that was just accepted.
//
// [Open] opens such a session for an administrator.
package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
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
	Given    string // source of the account and password, for hints; default: the Secret that spec.credentials names
	Trust    Trust
	// The following replace the password. Token is a token of single sign-on (SAML), which Certificate may have to
	// prove. Certificate alone requests a token. Sessions is a directory with sessions as govc saves them; new ones go
	// there too.
	Token       Password
	Certificate *tls.Certificate `json:"-"`
	Sessions    string

	Agent       string        // the program, as it names itself to the vCenter; default: vdo-operator
	Datacenters []string      // paths of datacenters that have to exist; empty requires none
	Timeout     time.Duration // of the whole check, without the wait in Turn; default 30 s
	// Turn calls login once it is its turn, and nothing else: the server is then known to be a vCenter. An error
	// without a login is the answer. nil: no wait.
	Turn func(ctx context.Context, login func() error) error `json:"-"`
	// Wrap wraps the transport of all requests; nil: none.
	Wrap func(http.RoundTripper) http.RoundTripper `json:"-"`
	// InstanceUUIDs are the accepted vCenters; empty accepts any.
	InstanceUUIDs []string
}

// TargetOf returns the vCenter of a resource, with the account and the CA that it names.
func TargetOf(v *v1alpha1.VsphereCloudConfig, username, password string, ca []byte) Target {
	return Target{
		Host: v.Spec.VcIP, Port: int(v.Spec.Port), Username: username, Password: Password(password),
		Trust:       Trust{Insecure: v.Spec.AnyCertificate(), Thumbprint: v.Spec.Thumbprint, CA: ca},
		Datacenters: v.Spec.DatacenterNames(), InstanceUUIDs: v.InstanceUUIDs(),
	}
}

// Password is a string that prints as "(hidden)".
type Password string

// String hides the password.
func (Password) String() string { return "(hidden)" }

// GoString hides the password.
func (Password) GoString() string { return "(hidden)" }

// MarshalText hides the password.
func (Password) MarshalText() ([]byte, error) { return []byte("(hidden)"), nil }

// Address returns host:port.
func (t Target) Address() string {
	return net.JoinHostPort(t.Host, strconv.Itoa(cmp.Or(t.Port, defaultPort)))
}

// Server returns host, or host:port where that is not the default.
func (t Target) Server() string {
	return strings.TrimSuffix(t.Address(), ":"+strconv.Itoa(defaultPort))
}

func (t Target) passwordless() bool { return t.Token != "" || t.Certificate != nil }

// Report is the result of [Check].
type Report struct {
	Version      string // as the vCenter names it: 8.0.3
	APIVersion   string // 8.0.3.0
	Build        string
	InstanceUUID string
	Thumbprint   string    // SHA-1 of the certificate served, in the form that the drivers take
	Expires      time.Time // of that certificate
	User         string    // the account as the vCenter names it
	Datacenters  []string  // inventory paths that the account can read, sorted
	Missing      []string  // missing ones of the requested datacenters, as they were written
}

// Check checks the vCenter. With a fault, the report has the facts until then.
func Check(ctx context.Context, t Target) (Report, error) {
	i := newInspection(t, Ask{}, defaultTimeout)
	defer i.Close()
	if err := i.enter(ctx); err != nil {
		return i.report, err
	}
	i.report.User = i.User
	return i.report, i.spend(ctx, func(ctx context.Context) error { return i.look(ctx, treeKinds) })
}
