package fault_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestWhatATerminalActsOn(t *testing.T) {
	for _, r := range "\x00\a\b\t\n\r\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" {
		require.True(t, fault.Control(r), "%U", r)
	}
	for _, r := range "aé 語'\\…\u00a0\u0301\u200d\ufffdא🙂" { // marks and joiners are part of words
		require.False(t, fault.Control(r), "%U", r)
	}
}
