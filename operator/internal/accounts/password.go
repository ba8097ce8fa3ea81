package accounts

import (
	"crypto/rand"
	"math/big"

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
func newPassword(r vcenter.PasswordRules) (vcenter.Password, error) {
	n := max(passwordLength, r.Least)
	if r.Most > 0 {
		n = min(n, r.Most)
	}
	var kinds []string
	for _, k := range []struct {
		of    string
		least int
	}{{upper, r.Upper}, {lower, r.Lower}, {digits, r.Numeric}, {special, r.Special}} {
		for range max(k.least, 1) {
			kinds = append(kinds, k.of)
		}
	}
	for letters := max(r.Upper, 1) + max(r.Lower, 1); letters < r.Alphabetic; letters++ {
		kinds = append(kinds, upper+lower)
	}
	for len(kinds) < n {
		kinds = append(kinds, upper+lower+digits)
	}
	return shuffled(kinds)
}

func shuffled(kinds []string) (vcenter.Password, error) {
	for i := len(kinds) - 1; i > 0; i-- {
		j, err := random(i + 1)
		if err != nil {
			return "", err
		}
		kinds[i], kinds[j] = kinds[j], kinds[i]
	}
	return spell(kinds)
}

func spell(kinds []string) (vcenter.Password, error) {
	out := make([]byte, 0, len(kinds))
	for len(out) < len(kinds) {
		from := kinds[len(out)]
		i, err := random(len(from))
		if err != nil {
			return "", err
		}
		if c := from[i]; len(out) == 0 || out[len(out)-1] != c {
			out = append(out, c)
		}
	}
	return vcenter.Password(out), nil
}

func random(n int) (int, error) {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0, err
	}
	return int(i.Int64()), nil
}
