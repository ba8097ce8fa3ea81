package vdoctl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// What govc would take for a pattern, for all that lies below, or for another path, is named by
// its id.
func TestAnObjectIsNamedSoThatGovcFindsJustThatOne(t *testing.T) {
	for path, want := range map[string]string{
		"/":                      `'/'`,
		"/dc/vm/node-1":          `'/dc/vm/node-1'`,
		"/dc/vm/it's %2f a.node": `'/dc/vm/it'\''s %2f a.node'`,
		"/dc/vm/*":               `-i 'VirtualMachine:vm-12' # /dc/vm/*`,
		"/dc/vm/node-?":          `-i 'VirtualMachine:vm-12' # /dc/vm/node-?`,
		"/dc/vm/node[1]":         `-i 'VirtualMachine:vm-12' # /dc/vm/node[1]`,
		`/dc/vm/a\b`:             `-i 'VirtualMachine:vm-12' # /dc/vm/a\b`,
		"/dc/vm/..":              `-i 'VirtualMachine:vm-12' # /dc/vm/..`,
		"/dc/vm/...":             `-i 'VirtualMachine:vm-12' # /dc/vm/...`,
		"/dc/vm/a\nrm -r ~":      `-i 'VirtualMachine:vm-12' # /dc/vm/a rm -r ~`,
		"/dc/vm/a\x1b[2K":        "-i 'VirtualMachine:vm-12' # /dc/vm/a\x1b[2K", // printing takes the control away
	} {
		require.Equal(t, want, govcObject(privileges.PlannedPermission{Path: path, ID: "VirtualMachine-vm-12"}))
	}
}
