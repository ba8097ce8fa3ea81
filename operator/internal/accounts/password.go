package accounts

import (
	"crypto/rand"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// newPassword makes a password of 20 characters, the most that a vCenter takes by default, of which 18 are
// random: 90 bits. It has the kinds that one demands, unless its rules are stricter: then the account is made
// by hand. None needs an escape in a shell, in YAML or in the drivers' configuration.
func newPassword() vcenter.Password {
	const half = 9
	return vcenter.Password("9-" + rand.Text()[:half] + strings.ToLower(rand.Text()[:half]))
}
