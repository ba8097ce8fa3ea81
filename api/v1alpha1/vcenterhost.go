package v1alpha1

import (
	"net/netip"
	"strings"
)

// BareHost returns a vCenter's host without surrounding space, and an IPv6 address without brackets.
func BareHost(host string) string {
	host = strings.TrimSpace(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return strings.TrimSuffix(inner, "]")
	}
	return host
}

// CanonicalHost returns a vCenter's host in the form for comparison. Names are in lower case
// without the root dot; IP addresses are canonical, without brackets.
func CanonicalHost(host string) string {
	host = BareHost(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
