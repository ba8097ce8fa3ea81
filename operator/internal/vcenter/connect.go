package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/xml"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

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
