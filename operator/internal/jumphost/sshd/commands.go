package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/redfish"
)

const help = `commands:
  host list [-l]                          names of the hosts; -l: with role and addresses
  host power NAME                         power state
  host power NAME on|off [--force]        power on, or shut down; --force: cut the power
  host reboot NAME [--force]              restart; --force: without asking the operating system
  ssh [USER@]NAME [COMMAND]               a session on a host, where node keys are set up
through it: ssh -J JUMPHOST USER@NAME, or -L and -W to a host's address or name
`

const maxPowering = 8 // controllers that are spoken with at once

// powering runs commands against management controllers.
type powering struct {
	slots    chan struct{}
	refusals redfish.Refusals // of all clients: another proxy does not unlock an account

	mu      sync.Mutex
	busy    map[string]bool // by host: controllers do badly with two at once
	running map[*running]struct{}
}

// host runs a command of the form `host …`.
func (s *Server) host(ctx context.Context, c *connection, args []string, out, errs io.Writer) int {
	args, force := without(args, "--force")
	verb, name, state := at(args, 0), at(args, 1), at(args, 2)
	var err error
	switch {
	case verb == "list" && (len(args) == 1 || (len(args) == 2 && name == "-l")) && !force:
		err = s.list(out, name == "-l")
	case verb == "power" && len(args) == 2 && !force:
		err = s.state(ctx, c, name, out)
	case verb == "power" && len(args) == 3 && (state == "on" || state == "off"):
		err = s.reset(ctx, c, name, redfish.Action(state), force, out)
	case verb == "reboot" && len(args) == 2:
		err = s.reset(ctx, c, name, redfish.Reboot, force, out)
	default:
		_, _ = io.WriteString(errs, "error: this is not a command of host\n"+help)
		return exitUsage
	}
	if err != nil {
		_, _ = io.WriteString(errs, told(err))
		return exitFailed
	}
	return exitOK
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

func without(args []string, flag string) ([]string, bool) {
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == flag })
	return rest, len(rest) < len(args)
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

func (s *Server) state(ctx context.Context, c *connection, name string, out io.Writer) error {
	return s.powered(ctx, c, name, "state", func(ctx context.Context, client *redfish.Client, h string, bmc jumphost.BMCHost) (string, error) {
		state, err := client.Power(ctx, h, bmc)
		if err == nil {
			_, _ = fmt.Fprintln(out, state)
		}
		return state, err
	})
}

func (s *Server) reset(ctx context.Context, c *connection, name string, action redfish.Action, force bool, out io.Writer) error {
	return s.powered(ctx, c, name, string(action), func(ctx context.Context, client *redfish.Client, h string, bmc jumphost.BMCHost) (string, error) {
		asked, err := client.Reset(ctx, h, bmc, action, force)
		switch {
		case err != nil:
		case asked == "":
			_, _ = fmt.Fprintf(out, "%s is %s already\n", h, action)
		default:
			_, _ = fmt.Fprintf(out, "%s: %s was asked of its BMC\n", h, asked)
		}
		return asked, err
	})
}

type powerCall func(ctx context.Context, client *redfish.Client, host string, bmc jumphost.BMCHost) (done string, err error)

// controller finds a host's BMC.
func controller(f *files, name string) (string, jumphost.BMCHost, error) {
	no := func(why, hint string) (string, jumphost.BMCHost, error) {
		return "", jumphost.BMCHost{}, &fault.Error{Reason: fault.NotFound, Op: "power", Subject: short(name), Err: errors.New(why), Hint: hint}
	}
	host, ok := f.config.Host(name)
	if !ok {
		return no("it is not a host of this cluster", "host list")
	}
	if f.bmc == nil {
		return no("this jump host has no access to BMCs", "have bmc set in spec.services.jumpHost of the SIPCluster")
	}
	bmc, ok := f.bmc.Hosts[host.Name]
	if !ok {
		return no("its BMC or the login of it is not known", "see spec.bmc of the BareMetalHost, and the Secret that it names")
	}
	return host.Name, bmc, nil
}
