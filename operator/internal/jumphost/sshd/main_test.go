package sshd_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/sshd"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/help"
)

func TestHelpFitsATerminal(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, 0, sshd.Main(t.Context(), "1.2.3", []string{"--help"}, io.Discard, &out))
	help.TextFits(t, "vdo-jumphost", out.String())
}
