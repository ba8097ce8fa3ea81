package accounts

import (
	"crypto/rand"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// newPassword returns a password of 20 characters, a vCenter's default maximum, of which 18 are random: 90 bits. It
// meets the default rules; stricter ones need an account made by hand. No character needs an escape in a shell, YAML
// or the drivers' configuration.
func newPassword() vcenter.Password {
	const half = 9
	return vcenter.Password("9-" + rand.Text()[:half] + strings.ToLower(rand.Text()[:half]))
}
