package vcenter

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// maxAnswer bounds each answer of the server. Ten thousand folders and datacenters
// make about 5 MiB.
const maxAnswer = 64 << 20

// maxVersions bounds the list of API versions.
const maxVersions = 1 << 20

var (
	errNotVCenter = errors.New("this is not a vCenter")
	errRedirect   = errors.New("it answers with a redirect")
)

// connect makes the client and reads what the vCenter says of itself, before any login. The
// certificate's thumbprint goes into the report.
func (a *Admin) connect(ctx context.Context) error {
	t := a.target
	config, err := t.Trust.config(t.Host, t.Address(), func(c *tls.ConnectionState) {
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
	sc.Transport = t.bounded(transport)
	sc.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect } // a redirected login would carry the password along
	sc.UserAgent = "vdo-operator"
	if sc.Version, err = apiVersion(ctx, sc, "vim", "urn:vim25"); err == nil {
		a.c, err = vim25.NewClient(ctx, sc)
	}
	if err == nil && a.c.ServiceContent.SessionManager == nil {
		err = fmt.Errorf("%w: it has no session manager", errNotVCenter)
	}
	if err != nil {
		transport.CloseIdleConnections()
	}
	return err
}

// apiVersion asks for the newest version of a namespace that the server speaks: one
// that it does not know is refused.
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
	switch {
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		return "", &statusError{res.StatusCode}
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%w: GET %s answers %s", errNotVCenter, u.Path, res.Status)
	}
	return parseVersions(io.LimitReader(res.Body, maxVersions), namespace)
}

// parseVersions finds the version of a namespace.
func parseVersions(r io.Reader, namespace string) (string, error) {
	var doc struct {
		XMLName    xml.Name `xml:"namespaces"`
		Namespaces []struct {
			Name    string `xml:"name"`
			Version string `xml:"version"`
		} `xml:"namespace"`
	}
	if err := xml.NewDecoder(r).Decode(&doc); err != nil {
		return "", fmt.Errorf("%w: its list of API versions cannot be read", errNotVCenter)
	}
	for _, n := range doc.Namespaces {
		if v := strings.TrimSpace(n.Version); n.Name == namespace && v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: it does not speak the API %s", errNotVCenter, strings.TrimPrefix(namespace, "urn:"))
}

// statusError is an HTTP status by which a vCenter says that it cannot answer now.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("it answers %d %s", e.code, http.StatusText(e.code))
}

// acceptable says whether the drivers can work with it at all: a vCenter of 6.7 or
// later, and one of those that are meant. 6.7 U3, the least that they name, may report itself as 6.7.0.
func (t Target) acceptable(a types.AboutInfo) error {
	address := t.Address()
	if a.ApiType != "VirtualCenter" {
		return fault.Errorf(fault.InvalidInput, "use", address, "set spec.vcIp to the vCenter that manages this host",
			"%w but %s", errNotVCenter, product(a))
	}
	if older(a.Version, 6, 7) {
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

func product(a types.AboutInfo) string {
	if a.FullName != "" {
		return a.FullName
	}
	return strings.TrimSpace(a.Name + " " + a.Version)
}

// older says whether version is before major.minor. What is no version is older.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return true
	}
	return a < major || a == major && b < minor
}

// bounded bounds the answers of a transport, as it is wrapped.
func (t Target) bounded(next http.RoundTripper) http.RoundTripper {
	if t.Wrap != nil {
		next = t.Wrap(next)
	}
	return bounded{next}
}

// bounded is a transport whose answers end with an error after maxAnswer bytes.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer)
	}
	return res, err
}
