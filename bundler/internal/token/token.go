// Package token signs with private keys on a hardware token (PKCS #11).
//
//	uri, err := token.ParseURI("pkcs11:token=signing;object=release?module-path=/usr/lib/softhsm/libsofthsm2.so")
//	key, err := token.Open(uri, pin)
//
// A URI of RFC 7512 names a key. In its path, token, serial or slot-id select the token, and object
// and id the key; other attributes are only checked for their form. In its query, module-path names
// the token's library, and pin-source the file with the PIN. ParseURI refuses pin-value: other users
// of the machine can see arguments.
//
// Token libraries are C code. To keep the programs one static file for every machine, only builds
// with the tag pkcs11 and cgo have [Open]:
//
//	CGO_ENABLED=1 go build -tags pkcs11 ./bundler/cmd/vdo-bundle
package token

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Scheme is the beginning of every URI.
const Scheme = "pkcs11:"

const maxURI = 4 << 10

// URI names a private key on a token.
type URI struct {
	Module string // path of the token's library; "" if not given
	Token  string // label, or
	Serial string // serial number, or
	Slot   *int   // number of the slot
	Object string // label of the key, and/or
	ID     []byte // id of the key
	// PINFile is the file of pin-source, or "".
	PINFile string

	name string // the URI as given, without its query
}

// String returns the URI without the source of its PIN.
func (u URI) String() string { return u.name }

// ParseURI parses a URI.
func ParseURI(s string) (URI, error) {
	u, err := parseURI(s)
	if err != nil {
		shown, _, _ := strings.Cut(strings.ReplaceAll(s, "pin-value", "?"), "?") // the rest may hold a PIN
		return URI{}, fault.Errorf(fault.InvalidInput, "read token URI", fmt.Sprintf("%.200q", shown),
			"write it as pkcs11:token=LABEL;object=KEY?module-path=/path/of/the/token/library.so", "%w", err)
	}
	return u, nil
}

func parseURI(s string) (u URI, err error) {
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok || len(s) > maxURI {
		return u, fmt.Errorf("it does not begin with %s, or is longer than %d bytes", Scheme, maxURI)
	}
	path, query, _ := strings.Cut(rest, "?")
	u.name = Scheme + path
	if err := u.read(strings.NewReplacer("+", "%2B", "&", "%26", ";", "&").Replace(path), (*URI).setPath); err != nil {
		return u, err
	}
	if err := u.read(strings.ReplaceAll(query, "+", "%2B"), (*URI).setQuery); err != nil {
		return u, err
	}
	chosen := 0
	for _, given := range []bool{u.Token != "", u.Serial != "", u.Slot != nil} {
		if given {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return u, errors.New("it does not choose a token by exactly one of token, serial and slot-id")
	case u.Object == "" && len(u.ID) == 0:
		return u, errors.New("it names no key: object or id is missing")
	}
	return u, nil
}

// read reads NAME=VALUE pairs, each name once.
func (u *URI) read(text string, set func(u *URI, name, value string) error) error {
	values, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("an attribute is not NAME=VALUE with %%XX escapes: %.60q", err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 {
			return fmt.Errorf("the attribute %.60q is there twice", name)
		}
		if name == "pin-value" {
			return errors.New("pin-value: everyone on this machine can see it; use pin-source, a file, or the environment")
		}
		if err := set(u, name, values[name][0]); err != nil {
			return err
		}
	}
	return nil
}

func (u *URI) setPath(name, value string) error {
	switch name {
	case "token":
		u.Token = value
	case "serial":
		u.Serial = value
	case "object":
		u.Object = value
	case "id":
		u.ID = []byte(value)
	case "slot-id":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return errors.New("slot-id is not a number")
		}
		slot := int(n) //nolint:gosec // 31 bits
		u.Slot = &slot
	case "type":
		if value != "private" {
			return fmt.Errorf("its type %.60q is not private", value)
		}
	case "manufacturer", "model", "library-manufacturer", "library-description", "library-version",
		"slot-manufacturer", "slot-description": // identify the token more closely than needed
	default:
		return fmt.Errorf("the attribute %.60q is not known", name)
	}
	return nil
}

func (u *URI) setQuery(name, value string) error {
	switch name {
	case "module-path":
		if !filepath.IsAbs(value) {
			return errors.New("module-path is not an absolute path")
		}
		u.Module = value
	case "pin-source":
		file := strings.TrimPrefix(strings.TrimPrefix(value, "file:"), "//")
		if !filepath.IsAbs(file) {
			return errors.New("pin-source is not a file: URI or absolute path")
		}
		u.PINFile = file
	default:
		return fmt.Errorf("the attribute %.60q is not known", name)
	}
	return nil
}
