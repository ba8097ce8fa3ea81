package accounts

import (
	"crypto/rand"
	"math/big"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// The characters of passwords. None needs an escape in a shell, in YAML or in the drivers'
// configuration, and none is easily taken for another one.
const (
	upper   = "ABCDEFGHJKLMNPQRSTUVWXYZ"
	lower   = "abcdefghijkmnopqrstuvwxyz"
	digits  = "23456789"
	special = "-_.!+"
)

// passwordLength is how long one is where the vCenter allows it: some 120 bits.
const passwordLength = 20

// newPassword makes a password that satisfies the rules. Two characters in a row are never
// the same.
func newPassword(r vcenter.PasswordRules) vcenter.Password {
	n := max(passwordLength, r.Least)
	if r.Most > 0 {
		n = min(n, r.Most)
	}
	var kinds []string
	add := func(kind string, least int) { kinds = append(kinds, slices.Repeat([]string{kind}, max(least, 0))...) }
	add(upper, max(r.Upper, 1))
	add(lower, max(r.Lower, 1))
	add(upper+lower, r.Alphabetic-len(kinds))
	add(digits, max(r.Numeric, 1))
	add(special, max(r.Special, 1))
	add(upper+lower+digits, n-len(kinds))
	for i := len(kinds) - 1; i > 0; i-- {
		j := random(i + 1)
		kinds[i], kinds[j] = kinds[j], kinds[i]
	}
	var out vcenter.Password
	for len(out) < len(kinds) {
		from := kinds[len(out)]
		if c := from[random(len(from))]; len(out) == 0 || out[len(out)-1] != c {
			out += vcenter.Password(c)
		}
	}
	return out
}

func random(n int) int {
	i, _ := rand.Int(rand.Reader, big.NewInt(int64(n))) // it never fails
	return int(i.Int64())
}
