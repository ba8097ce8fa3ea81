package sshd

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const help = `commands:
  host list [-l]                          names of the hosts; -l: with role and addresses
  ssh [USER@]NAME [COMMAND]               a session on a host, where node keys are set up
power: create a HostAction in the management cluster
through it: ssh -J JUMPHOST USER@NAME, or -L and -W to a host's address or name
`

// noPower answers the power commands of earlier versions.
const noPower = "error: the jump host does not control power\n" +
	"hint: create a HostAction in the namespace of the SIPCluster\n"

// host runs a command of the form `host …`.
func (s *Server) host(args []string, out, errs io.Writer) int {
	verb := at(args, 0)
	switch {
	case verb == "list" && (len(args) == 1 || (len(args) == 2 && args[1] == "-l")):
		if err := s.list(out, len(args) == 2); err != nil {
			_, _ = io.WriteString(errs, told(err))
			return exitFailed
		}
		return exitOK
	case verb == "power" || verb == "reboot":
		_, _ = io.WriteString(errs, noPower)
		return exitFailed
	}
	_, _ = io.WriteString(errs, "error: this is not a command of host\n"+help)
	return exitUsage
}

// told is an error as vdo-bundle tells one, each of several by itself.
func told(err error) string {
	all := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		all = joined.Unwrap()
	}
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "error: %v\n", e)
		if hint := fault.HintOf(e); hint != "" {
			fmt.Fprintf(&b, "hint: %s\n", hint)
		}
	}
	return b.String()
}

func at(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

func (s *Server) list(out io.Writer, long bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, h := range s.files.Load().config.Hosts {
		if !long {
			_, _ = fmt.Fprintln(t, h.Name)
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", h.Name, h.Role, joined(h.Addresses))
	}
	return t.Flush()
}

func joined(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}
