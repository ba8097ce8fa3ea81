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
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
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
	Ends     time.Time // of the password; zero if unknown or never
	Given    string    // source of the account and password, for hints; default: the Secret that spec.credentials names
	Trust    Trust
	Proven

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

// Proven replaces the password. Token is a token of single sign-on (SAML), which Certificate may have to prove.
// Certificate alone requests a token. Sessions is a directory with sessions as govc saves them; new ones go there too.
type Proven struct {
	Token       Password
	Certificate *tls.Certificate `json:"-"`
	Sessions    string
}

// TargetOf returns the vCenter of a resource, with the account and the CA that it names.
func TargetOf(v *v1alpha1.VsphereCloudConfig, username, password string, ca []byte) Target {
	return Target{
		Host: v.Spec.VcIP, Port: int(v.Spec.Port), Username: username, Password: Password(password),
		Trust:       Trust{Insecure: v.Spec.AnyCertificate(), Thumbprint: v.Spec.Thumbprint, CA: ca, Name: v.Name},
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
	// Took is the time for it, without the wait in Turn and the logout.
	Took time.Duration
}

// Check checks the vCenter. With a fault, the report has the facts until then.
func Check(ctx context.Context, t Target) (Report, error) {
	i := newInspection(t, Ask{}, defaultTimeout)
	defer i.Close()
	if err := i.enter(ctx); err != nil {
		return i.report, err
	}
	i.report.User = i.User
	err := i.spend(ctx, func(ctx context.Context) error { return i.look(ctx, treeKinds) })
	return i.report, err
}

const maxVersions = 1 << 20

// connect creates the client and reads what the vCenter reports before a login. The certificate's thumbprint goes into
// the report.
func (a *Admin) connect(ctx context.Context) error {
	t := a.target
	config, err := t.Trust.config(t.Host, func(c *tls.ConnectionState) {
		leaf := c.PeerCertificates[0]
		a.report.Thumbprint, a.report.Expires = soap.ThumbprintSHA1(leaf), leaf.NotAfter
	})
	if err != nil {
		return err
	}
	sc := soap.NewClient(&url.URL{Scheme: "https", Host: t.Address(), Path: vim25.Path}, false)
	transport := sc.DefaultTransport()
	transport.DialTLSContext = nil // it ignores the context; config has the whole rule
	transport.TLSClientConfig = config
	sc.Transport = t.wrapped(transport)
	sc.CheckRedirect = func(*http.Request, []*http.Request) error { // a redirected login would carry the password along
		return notVCenter("it answers with a redirect")
	}
	sc.UserAgent = cmp.Or(t.Agent, "vdo-operator")
	if sc.Version, err = apiVersion(ctx, sc, "vim", "urn:vim25"); err == nil {
		a.c, err = vim25.NewClient(ctx, sc)
	}
	if err == nil && a.c.ServiceContent.SessionManager == nil {
		err = notVCenter("it has no session manager")
	}
	if err != nil {
		transport.CloseIdleConnections()
	}
	return err
}

// apiVersion returns the newest version of a namespace that the server supports: it refuses an unknown one.
func apiVersion(ctx context.Context, sc *soap.Client, kind, namespace string) (string, error) {
	u := sc.URL()
	u.Path = vim25.Path + "/" + kind + "ServiceVersions.xml"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := sc.Client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	switch answer := fmt.Errorf("it answers %s", res.Status); {
	case res.StatusCode == http.StatusTooManyRequests:
		return "", &fault.Error{Reason: fault.Throttled, Err: answer, Hint: "wait, or look for what asks this vCenter so often"}
	case res.StatusCode >= 500:
		return "", &fault.Error{Reason: fault.Unreachable, Err: answer, Hint: "wait until the vCenter's services are started, or see what is wrong with them"}
	case res.StatusCode != http.StatusOK:
		return "", notVCenter(answer.Error())
	}
	var doc struct {
		XMLName    xml.Name `xml:"namespaces"`
		Namespaces []struct {
			Name    string `xml:"name"`
			Version string `xml:"version"`
		} `xml:"namespace"`
	}
	if err := xml.NewDecoder(io.LimitReader(res.Body, maxVersions)).Decode(&doc); err != nil {
		return "", notVCenter("its list of API versions cannot be read")
	}
	for _, n := range doc.Namespaces {
		if v := strings.TrimSpace(n.Version); n.Name == namespace && v != "" {
			return v, nil
		}
	}
	return "", notVCenter("it does not speak the API " + strings.TrimPrefix(namespace, "urn:"))
}

// acceptable returns why the drivers cannot use a server: it is no vCenter of 6.7 or later, or not an accepted one.
// 6.7 U3, the lowest version that the drivers name, may report itself as 6.7.0.
func (t Target) acceptable(a types.AboutInfo) error {
	address := t.Address()
	if a.ApiType != "VirtualCenter" {
		return notVCenter("it is " + a.FullName)
	}
	if preflight.Older(a.Version, "6.7.0") {
		return fault.Errorf(fault.Incompatible, "use", address, "upgrade the vCenter",
			"vCenter %s is older than 6.7 U3, the first that the drivers work with", a.Version)
	}
	if len(t.InstanceUUIDs) > 0 && !slices.Contains(t.InstanceUUIDs, a.InstanceUuid) {
		return fault.Errorf(fault.Conflict, "use", address,
			"if it replaces the other one, set spec.acceptInstanceUUID of the VsphereCloudConfig to "+a.InstanceUuid,
			"another vCenter answers: expected instance UUID %s, got %s", t.InstanceUUIDs[0], a.InstanceUuid)
	}
	return nil
}

func (t Target) wrapped(transport http.RoundTripper) http.RoundTripper {
	if t.Wrap == nil {
		return transport
	}
	return t.Wrap(transport)
}

// Trust is the rule for the vCenter's certificate. The first field that is set decides alone; the zero value trusts
// the system's roots.
type Trust struct {
	Thumbprint string // accept exactly the certificate of this SHA-1 or SHA-256, as hex pairs with colons
	Insecure   bool   // accept any certificate
	CA         []byte // PEM: accept certificates of these CAs, for the host's name
	Name       string // of the VsphereCloudConfig, for hints and metrics alone
}

// config returns the rule for a handshake with host. It calls seen with the state of each accepted connection.
func (t Trust) config(host string, seen func(*tls.ConnectionState)) (*tls.Config, error) {
	var roots *x509.CertPool // nil means the system's
	if !t.Insecure && t.Thumbprint == "" && t.CA != nil {
		var err error
		if roots, err = authorities(t.CA); err != nil {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read the CA certificates of", Err: err,
				Hint: "put the PEM certificates, -----BEGIN CERTIFICATE-----, into the key that spec.ca names"}
		}
	}
	return &tls.Config{
		ServerName:         host,
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection has the rule, for connections through a proxy too
		VerifyConnection: func(cs tls.ConnectionState) error {
			if hint, err := t.verify(host, roots, cs.PeerCertificates); err != nil {
				return &fault.Error{Reason: fault.CertificateInvalid, Err: err, Hint: hint}
			}
			seen(&cs)
			return nil
		},
	}, nil
}

// CheckCA returns why PEM certificates of CAs cannot be used, read as for a connection.
func CheckCA(data []byte) error {
	_, err := authorities(data)
	return err
}

func authorities(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("there is no PEM certificate in it")
	}
	return pool, nil
}

func (t Trust) verify(host string, roots *x509.CertPool, chain []*x509.Certificate) (hint string, err error) {
	leaf := chain[0] // a client's handshake fails earlier without one
	one, two := soap.ThumbprintSHA1(leaf), soap.ThumbprintSHA256(leaf)
	if t.Thumbprint != "" {
		if strings.EqualFold(t.Thumbprint, one) || strings.EqualFold(t.Thumbprint, two) {
			return "", nil
		}
		return "where the certificate was renewed, set spec.thumbprint to the new one after comparing it with what the vCenter itself shows",
			fmt.Errorf("the thumbprint of its certificate is %s (SHA-256 %s), not %s", one, two, strings.ToUpper(t.Thumbprint))
	}
	if t.Insecure {
		return "", nil
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err = leaf.Verify(opts)
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &name):
		return "set spec.vcIp to a name of the certificate, or spec.thumbprint; or reissue it with the vCenter's fully qualified name", err
	case errors.As(err, &invalid):
		return "renew the vCenter's certificate, or correct the clock of this machine", err
	}
	return "spec.ca has to be that CA: `vdoctl configure --vcenter " + cmp.Or(t.Name, "NAME") + " --vcenter-ca-file CA`, with -o FILE for a file; or set spec.thumbprint after comparing it with what the vCenter itself shows",
		&UntrustedError{SHA1: one, SHA256: two, Issuer: leaf.Issuer.String()}
}

// UntrustedError is the refusal of a certificate of an unknown CA.
type UntrustedError struct{ SHA1, SHA256, Issuer string }

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("its certificate (SHA-1 %s, SHA-256 %s), issued by %q, is signed by an unknown CA",
		e.SHA1, e.SHA256, e.Issuer)
}
