package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const (
	headerTimeout = 5 * time.Second
	helpWidth     = 80 // columns
)

// Main is the program vdo-jumphost without its process: it serves until ctx is over, writes
// audit lines to stdout, everything else to stderr, and returns the exit code: 0 stopped as
// asked, 2 wrong flags or files, 1 anything else.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	o := Options{Audit: stdout, Log: slog.New(slog.NewJSONHandler(stderr, nil))}
	fs := pflag.NewFlagSet("vdo-jumphost", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() { _, _ = fmt.Fprintf(stderr, "Usage of vdo-jumphost:\n%s", fs.FlagUsagesWrapped(helpWidth)) }
	listen := fs.String("listen", ":2222", "`ADDRESS` for SSH")
	health := fs.String("health", ":8080", "`ADDRESS` for /healthz and /readyz; empty for none")
	show := fs.Bool("version", false, "print the version")
	fs.StringVar(&o.Dir, "dir", jumphost.Dir, "`DIR` with the files")
	fs.DurationVar(&o.Limits.Idle, "idle-timeout", 0, "`DURATION` after which a connection without traffic is closed (default 1h)")
	fs.DurationVar(&o.Limits.Grace, "grace", 0, "`DURATION` that connections have at the end (default 20s)")
	fs.IntVar(&o.Limits.Connections, "max-connections", 0, "`NUMBER` of connections at once (default 256)")
	err := fs.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", fs.Arg(0))
		fallthrough
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "error: %v\nhint: see vdo-jumphost --help\n", err)
		return exitUsage
	case *show:
		_, _ = fmt.Fprintln(stdout, version)
		return exitOK
	}
	if err := serve(ctx, o, *listen, *health); err != nil {
		_, _ = io.WriteString(stderr, told(err))
		if fault.ReasonOf(err) == fault.InvalidInput {
			return exitUsage
		}
		return exitFailed
	}
	return exitOK
}

func serve(ctx context.Context, o Options, listen, health string) error {
	s, err := New(o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for SSH: %w", err)
	}
	if health != "" {
		h, err := net.Listen("tcp", health)
		if err != nil {
			_ = l.Close()
			return fmt.Errorf("listen for probes: %w", err)
		}
		probes := &http.Server{Handler: s.Health(), ReadHeaderTimeout: headerTimeout}
		go func() { _ = probes.Serve(h) }()
		defer func() { _ = probes.Close() }()
	}
	return s.Serve(ctx, l)
}
