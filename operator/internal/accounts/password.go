package accounts

import (
	"crypto/rand"
	"math/big"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// kinds are the characters of passwords. None needs an escape in a shell, in YAML or in the
// drivers' configuration, and none is easily taken for another one.
var kinds = [...]string{"ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.!+"}

const (
	// passwordLength is the longest that a vCenter takes by default: some 120 bits.
	passwordLength = 20
	// leastOfKind is more than a vCenter demands of each kind by default.
	leastOfKind = 2
)

// newPassword makes a password that vCenters take, unless their rules are stricter by far: then the
// account is made by hand. Two characters in a row are never the same.
func newPassword() vcenter.Password {
	all := strings.Join(kinds[:], "")
	for {
		var p []byte
		for len(p) < passwordLength {
			if c := all[random(len(all))]; len(p) == 0 || p[len(p)-1] != c {
				p = append(p, c)
			}
		}
		if hasAllKinds(string(p)) {
			return vcenter.Password(p)
		}
	}
}

func hasAllKinds(p string) bool {
	for _, kind := range kinds {
		n := 0
		for _, c := range p {
			if strings.ContainsRune(kind, c) {
				n++
			}
		}
		if n < leastOfKind {
			return false
		}
	}
	return true
}

func random(n int) int {
	i, _ := rand.Int(rand.Reader, big.NewInt(int64(n))) // it never fails
	return int(i.Int64())
}
