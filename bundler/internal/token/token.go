// Package token signs with private keys on a hardware token (PKCS #11).
//
//	uri, err := token.ParseURI("pkcs11:token=signing;object=release?module-path=/usr/lib/softhsm/libsofthsm2.so")
//	key, err := token.Open(uri, askForPIN)
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
	name := Scheme + path
	path = strings.NewReplacer("+", "%2B", "&", "%26", ";", "&").Replace(path)
	of, err := attributes(path, "token", "serial", "slot-id", "object", "id", "type",
		"manufacturer", "model", "library-manufacturer", "library-description", "library-version",
		"slot-manufacturer", "slot-description") // which identify the token more closely than needed
	if err != nil {
		return u, err
	}
	by, err := attributes(strings.ReplaceAll(query, "+", "%2B"), "module-path", "pin-source")
	if err != nil {
		return u, err
	}
	u = URI{
		Module: by["module-path"], Token: of["token"], Serial: of["serial"], Object: of["object"], ID: []byte(of["id"]),
		PINFile: strings.TrimPrefix(strings.TrimPrefix(by["pin-source"], "file:"), "//"), name: name,
	}
	slot, slotErr := strconv.ParseUint(of["slot-id"], 10, 31)
	if slotErr == nil {
		n := int(slot) //nolint:gosec // 31 bits
		u.Slot = &n
	}
	chosen := slices.DeleteFunc([]string{u.Token, u.Serial, of["slot-id"]}, func(s string) bool { return s == "" })
	isGiven := func(all map[string]string, name string) bool { _, ok := all[name]; return ok }
	switch {
	case isGiven(of, "slot-id") && slotErr != nil:
		err = errors.New("slot-id is not a number")
	case isGiven(of, "type") && of["type"] != "private":
		err = fmt.Errorf("its type %.60q is not private", of["type"])
	case isGiven(by, "module-path") && !filepath.IsAbs(u.Module):
		err = errors.New("module-path is not an absolute path")
	case isGiven(by, "pin-source") && !filepath.IsAbs(u.PINFile):
		err = errors.New("pin-source is not a file: URI or absolute path")
	case len(chosen) != 1:
		err = errors.New("it does not choose a token by exactly one of token, serial and slot-id")
	case u.Object == "" && len(u.ID) == 0:
		err = errors.New("it names no key: object or id is missing")
	}
	return u, err
}

// attributes reads NAME=VALUE pairs of known names, each once.
func attributes(text string, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("an attribute is not NAME=VALUE with %%XX escapes: %.60q", err.Error())
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case name == "pin-value":
			return nil, errors.New("pin-value: everyone on this machine can see it; use pin-source, a file, or the environment")
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("the attribute %.60q is not known", name)
		case len(values[name]) > 1:
			return nil, fmt.Errorf("the attribute %.60q is there twice", name)
		}
		out[name] = values[name][0]
	}
	return out, nil
}
