package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Identity is one name that a certificate may have, in exactly these characters:
// one of the three.
type Identity struct {
	Email string `yaml:"email,omitempty"`
	URI   string `yaml:"uri,omitempty"`
	DNS   string `yaml:"dns,omitempty"`
}

// String writes the identity as "email release@corp.example".
func (i Identity) String() string {
	switch {
	case i.Email != "":
		return "email " + i.Email
	case i.URI != "":
		return "uri " + i.URI
	case i.DNS != "":
		return "dns " + i.DNS
	}
	return "no identity"
}

func (i Identity) check() error {
	given := 0
	for _, s := range []string{i.Email, i.URI, i.DNS} {
		if s != "" {
			given++
		}
		if err := exact(s); err != nil {
			return err
		}
	}
	if given != 1 {
		return errors.New("an identity is exactly one of email, uri and dns")
	}
	return nil
}

func exact(name string) error {
	if strings.TrimSpace(name) != name || strings.ContainsAny(name, "*\n") {
		return fmt.Errorf("%q is not an exact name: identities are compared character by character, without wildcards", name)
	}
	return nil
}

// checkIdentities demands at least one; without is what none would mean.
func checkIdentities[T interface{ check() error }](all []T, without string) error {
	switch {
	case len(all) == 0:
		return errors.New("it has no identities: " + without)
	case len(all) > maxIdentities:
		return fmt.Errorf("%d identities are more than %d", len(all), maxIdentities)
	}
	for n, i := range all {
		if err := i.check(); err != nil {
			return fmt.Errorf("identities[%d]: %w", n, err)
		}
	}
	return nil
}

// of reports whether a certificate has the identity among its subject alternative
// names. Its common name does not count.
func (i Identity) of(c *x509.Certificate) bool {
	return slices.Contains(namesOf(c), i.String())
}

// namesOf lists what a certificate calls itself, as [Identity.String] writes it.
func namesOf(c *x509.Certificate) (names []string) {
	for _, e := range c.EmailAddresses {
		names = append(names, "email "+e)
	}
	for _, u := range c.URIs {
		names = append(names, "uri "+u.String())
	}
	for _, d := range c.DNSNames {
		names = append(names, "dns "+d)
	}
	return names
}

// identitiesOf is what a certificate calls itself, for messages.
func identitiesOf(c *x509.Certificate) string {
	names := namesOf(c)
	switch {
	case len(names) == 0:
		return "nobody (it has no subject alternative name)"
	case len(names) > 3:
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return fmt.Sprintf("%.300q", strings.Join(names, ", "))
}
