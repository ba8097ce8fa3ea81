package v1alpha1

import (
	"net/netip"
	"strings"
)

// BareHost returns a vCenter's host without space around it, and an IPv6 address without brackets.
func BareHost(host string) string {
	host = strings.TrimSpace(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return strings.TrimSuffix(inner, "]")
	}
	return host
}

// CanonicalHost returns a vCenter's host as it is compared with another one: names in small letters
// and without the dot of the root, IP addresses in their one form, without brackets.
func CanonicalHost(host string) string {
	host = BareHost(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
