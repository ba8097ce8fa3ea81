package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	help "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
)

// Exit codes of vdo-operator.
const (
	ExitOK      = 0 // a requested stop
	ExitFailed  = 1 // any other cause
	ExitUsage   = 2 // invalid flag, kubeconfig or trust floor
	ExitCluster = 3 // the API server is unreachable or refuses, or the CRDs are missing
)

type flags struct {
	Options
	kubeconfig string
	trustFloor string
	level      string
}

// Main is the program without its process. It runs until ctx is done, writes help to stdout, logs and errors to
// stderr, and returns the exit code. The version is the release's, "" for other builds.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	build := command.BuildOf("vdo-operator", version)
	cmd := newCommand(cmp.Or(version, build.Revision, build.Version), stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "vdo-operator: "+strings.ReplaceAll(fault.Text(err), "\n", "\nvdo-operator: ")) //nolint:errcheck // that stderr is gone cannot be told
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch fault.ReasonOf(err) {
	case "":
		return ExitOK
	case fault.InvalidInput:
		return ExitUsage
	case fault.Unreachable, fault.CertificateInvalid, fault.Unauthorized, fault.Forbidden, fault.NotFound, fault.Throttled:
		return ExitCluster
	default:
		return ExitFailed
	}
}

func newCommand(version string, stderr io.Writer) *cobra.Command {
	f := &flags{Options: Options{Version: version}}
	cmd := &cobra.Command{
		Use:   "vdo-operator",
		Short: "Install, upgrade and watch a cluster's vSphere drivers",
		Long: `Install, upgrade and watch the vSphere drivers of a Kubernetes cluster.

Runs in the cluster, or beside it with --kubeconfig. Logs are JSON on stderr.
Exit codes: 0 stopped as asked, 2 wrong flags, kubeconfig or trust floor, 3 the
API server cannot be used, 1 anything else.`,
		Version:       version,
		Args:          help.Exactly(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PreRunE:       help.Filled,
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), stderr) },
	}
	cmd.SetFlagErrorFunc(help.Unread)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = help.ShowHelp(cmd, cmd.OutOrStdout()) }) // its error has no reader
	f.register(cmd)
	return cmd
}

func (f *flags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.Controllers, f.level = Drivers, "info"
	sets := &help.Choice{To: (*string)(&f.Controllers), Of: []string{string(Drivers), string(SIP)}}
	fs.Var(sets, "controllers", "`SET` to run: drivers, or sip for the hosts and services of SIPClusters")
	fs.StringVar(&f.Namespace, "namespace", "", "`NAMESPACE` of the operator and its resources; default: "+DefaultNamespace+", or "+DefaultSIPNamespace+" for sip")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` to reach the cluster with; default: the ServiceAccount of the pod")
	fs.BoolVar(&f.LeaderElect, "leader-elect", false, "work only while holding the lease, so that several replicas can run")
	fs.StringVar(&f.MetricsAddress, "metrics-bind-address", "0", "`ADDRESS` for metrics over TLS, to those whom the API server lets GET /metrics; 0 for none")
	fs.StringVar(&f.MetricsCertDir, "metrics-cert-dir", "", "`DIR` with tls.crt and tls.key for metrics; default: a certificate made at start")
	fs.StringVar(&f.ProbeAddress, "health-probe-bind-address", "0", "`ADDRESS` for /healthz and /readyz; 0 for none")
	fs.StringArrayVar(&f.PlainHTTP, "plain-http", nil, "`HOST[:PORT]` of a mirror to speak plain HTTP with; repeatable")
	fs.StringVar(&f.trustFloor, "trust-floor", "", "`FILE` with a trust policy that every bundle has to satisfy besides its DriverBundle's; read at the start")
	fs.StringVar(&f.SIP.Egress, "sip-egress", "", "sip: `CIDRS` that services may connect to, with commas between them; default: hosts in private networks, no provider of users")
	fs.StringVar(&f.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector that is sent traces of passes by OTLP over HTTP, such as https://otel:4318; default: $OTEL_EXPORTER_OTLP_ENDPOINT, and none without it")
	levels := &help.Choice{To: &f.level, Of: []string{"debug", "info", "error"}}
	fs.Var(levels, "log-level", "`LEVEL`: debug, info or error")
}

func (f *flags) run(ctx context.Context, stderr io.Writer) error {
	logger := newLogger(f.level, stderr)
	if f.Controllers != SIP && f.SIP != (SIPOptions{}) {
		return help.Bad("--sip-egress", f.SIP.Egress, errors.New("it needs --controllers=sip"), "leave it out")
	}
	log.SetLogger(logger)
	klog.SetLogger(logger)
	var err error
	if f.TrustFloor, f.TrustFloorID, err = readFloor(f.trustFloor); err != nil {
		return err
	}
	cfg, err := config(f.kubeconfig)
	if err != nil {
		return err
	}
	f.OTLPEndpoint = cmp.Or(f.OTLPEndpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	f.Log = logger
	return Run(ctx, cfg, f.Options)
}

func newLogger(level string, to io.Writer) logr.Logger {
	l, _ := zapcore.ParseLevel(level) // a Choice has checked it
	return zap.New(zap.WriteTo(to), zap.JSONEncoder(utc), zap.Level(uberzap.NewAtomicLevelAt(l)),
		zap.StacktraceLevel(zapcore.DPanicLevel))
}

// utc encodes times as RFC 3339.
func utc(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.RFC3339NanoTimeEncoder }

func config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read kubeconfig", Subject: kubeconfig, Err: err,
				Hint: "name a readable kubeconfig file with --kubeconfig"}
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "find the cluster", Err: errors.New("this is not a pod"),
			Hint: "give --kubeconfig FILE to run beside a cluster"}
	}
	if err != nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read the ServiceAccount of the pod", Err: err,
			Hint: "set automountServiceAccountToken on the pod, or give --kubeconfig FILE"}
	}
	return cfg, nil
}

// readFloor reads the policy of --trust-floor and the files that it names, relative to it; "" is no floor. Faults
// have fault.InvalidInput: an operator does not start without its requested floor. The id identifies the contents.
func readFloor(name string) (p *trust.Policy, id string, err error) {
	if name == "" {
		return nil, "", nil
	}
	return driverbundle.ReadFloor(name, readFloorFile)
}

func readFloorFile(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		err = errors.New("it is not there")
	}
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "read --trust-floor", name,
			"mount the policy and the files that it names into the pod, in one folder, and name the policy's path",
			"%w", err)
	}
	return data, nil
}

const (
	// gcPercent keeps the heap small between the bursts of work of a mostly idle operator.
	gcPercent = 50
	// memoryLimit exceeds the 46 MiB that 5,000 nodes take when all register at once, and a third
	// more for the heap and stacks. Above it the collector works harder and returns memory at once.
	memoryLimit = 71 << 20 // bytes, without the program itself
)

// BoundMemory lets the process use less memory for more CPU time. GOGC and GOMEMLIMIT of the environment take
// precedence.
func BoundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
