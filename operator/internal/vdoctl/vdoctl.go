// Package vdoctl is the command line of a cluster's administrator: checks before an installation, status after it,
// accounts of vCenters, and approvals. Like kubectl it reads a kubeconfig.
//
// Commands that change something say so in their help. They show the changes and ask for consent, unless --yes is
// given. With --dry-run the API server checks the changes, and nothing changes. An interrupted command continues if it
// is run again. Commands act through the operator's resources, so the operator's own rules apply.
//
// Called as kubectl-vdo, the name by which kubectl finds it, it calls itself `kubectl vdo`.
//
// Package api/command has the parts that all programs share: errors, exit codes, the look of help and tables. -o
// selects text, json or yaml; all three print the same value. -o name prints its objects. Passwords come from Secrets,
// a file, the environment or a prompt, never from an argument. A password that the vCenter refused to the operator is
// not tried again.
package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
)

type app struct {
	in       *os.File // prompts for passwords if it is a terminal
	out, err io.Writer
	terminal bool   // out is a terminal
	format   string // of results, as -o says
	getenv   func(string) (string, bool)
	now      func() time.Time
	build    command.Build
	plugin   bool // called by kubectl
	cluster  clusterFlags
	logins   *logins.Logins // of all commands and prompts of this run
	// unanswered is set if a signal came during a prompt. All prompts come before any change.
	unanswered bool
}

// Main runs the program named by args[0] and returns its exit code.
func Main(version string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), command.Signals()...)
	defer stop()
	klog.SetLogger(logr.Discard()) // the failing command reports errors; a library's log lines would interleave
	log.SetLogger(logr.Discard())  // else it prints a stack trace in a run of more than 30 seconds
	a := &app{
		in: os.Stdin, out: command.Stdout(), err: os.Stderr, terminal: term.IsTerminal(int(os.Stdout.Fd())),
		getenv: os.LookupEnv, now: time.Now, logins: &logins.Logins{},
		build: command.BuildOf("vdoctl", version), plugin: strings.HasPrefix(filepath.Base(args[0]), "kubectl-"),
	}
	return a.run(ctx, args[1:])
}

func (a *app) run(ctx context.Context, args []string) int {
	a.cluster.trace.to = a.err
	_, err := command.Run(ctx, a.root(), args, a.out, a.err)
	if err != nil && ctx.Err() != nil {
		f := &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Hint: "run the same command again"}
		if a.unanswered {
			f.Err = errors.New("no changes made")
		}
		err = f
	}
	if shown, ok := errors.AsType[*resultError](err); ok {
		return shown.code
	}
	command.Report(a.err, err, a.format == flags.JSON)
	return command.ExitCode(err)
}

// resultError ends the program with an exit code if the result itself has the error.
type resultError struct{ code int }

func (*resultError) Error() string { return "see the result" }

const exitCodesHelp = `Results:
  8    check: a result blocks an installation or upgrade;
       users verify: a privilege is missing; status, describe: not all is ready;
       configure: its resources were changed meanwhile;
       plan: a gate blocks the upgrade
  9    support-bundle: written, but some of it could not be read`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "vdoctl",
		Short: "Check, install and upgrade a cluster's vSphere drivers",
		Long: `vdoctl checks cluster, nodes and vCenters for the vSphere drivers, installs their operator,
shows the status, and approves upgrades. It reads the cluster's VDOConfig and
VsphereCloudConfigs, or a file before the installation. Commands ask before they change
anything.`,
		Example: `  vdoctl check
  vdoctl check --from-file site.yaml
  vdoctl status --watch
  vdoctl users plan -o govc`,
		Version: a.build.String(),
	}
	flags.GlobalGroup(root, a.cluster.bind)
	command.Root(root, "\n"+exitCodesHelp)
	root.SetOut(a.out) // before the completion command takes it
	if a.plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vdo"}
	}
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "output" {
			name = "format" // as kubectl calls it
		}
		return pflag.NormalizedName(name)
	})
	a.addCommands(root)
	return root
}

func (a *app) addCommands(root *cobra.Command) {
	users := append([]*cobra.Command{newUsersPlanCommand(a), newUsersVerifyCommand(a)}, newUsersChangeCommands(a)...)
	command.Add(root, "before", "Before drivers are installed", newCheckCommand(a),
		groupOf("nodes", "Check the nodes' side: kubelet, taints, provider ids", newNodesCheckCommand(a)),
		groupOf("users", "Make, verify and change the vCenters' accounts, with the least privileges", users...),
		groupOf("topology", "Check and tag regions and zones", newTopologyCheckCommand(a), newTopologyTagCommand(a)),
		groupOf("vms", "Check the settings of the nodes' VMs, and put them right", newVMsCheckCommand(a), newVMsFixCommand(a)))
	command.Add(root, "run", "While they run", newStatusCommand(a), newDescribeCommand(a), newPlanCommand(a),
		groupOf("upgrade", "List revisions, approve an upgrade, go back to an earlier one",
			newUpgradeListCommand(a), newUpgradeApproveCommand(a), newUpgradeRollbackCommand(a)),
		groupOf("matrix", "Have the operator follow a bundle with another compatibility matrix", newMatrixSetCommand(a, "set")),
		newSupportBundleCommand(a))
	command.Add(root, "change", "Install and remove", newDeployCommand(a), newConfigureCommand(a), newDeleteCommand(a))
	update := groupOf("update", "Follow a bundle with a newer matrix; see matrix set", newMatrixSetCommand(a, "compatibility-matrix"))
	update.Hidden = true // its name in the earlier operator's command line
	root.AddCommand(newVersionCommand(a), update)
	flags.Complete(root)
}

func runs(run func(context.Context) error, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }
	return cmd
}

func groupOf(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

const operatorNamespace = "vmware-system-vdo"

const requestTimeout = 30 * time.Second

// clusterFlags select the cluster, like kubectl's flags.
type clusterFlags struct {
	kubeconfig, context, namespace string

	trace tracing
}

func (f *clusterFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` to reach the cluster with (default: KUBECONFIG, ~/.kube/config)")
	fl.StringVar(&f.context, "context", "", "`NAME` of the context in the kubeconfig")
	fl.StringVarP(&f.namespace, "namespace", "n", operatorNamespace, "`NAMESPACE` of the operator and its resources")
	fl.IntVarP(&f.trace.level, "v", "v", 0, "`LEVEL` of what is shown of requests, without secrets: 1 each one, 2 headers of answers too")
}

func (f *clusterFlags) config() (*rest.Config, error) {
	cfg, err := f.loader().ClientConfig()
	if err != nil {
		return nil, f.unread(err)
	}
	cfg.Timeout, cfg.QPS, cfg.Burst = requestTimeout, 50, 100
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(f.trace.wrap)
	return cfg, nil
}

func (f *clusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// target returns the context and the API server for prompts; "" if none is configured.
func (f *clusterFlags) target() string {
	cfg, err := f.config()
	if err != nil {
		return ""
	}
	raw, err := f.loader().RawConfig()
	if name := cmp.Or(f.context, raw.CurrentContext); err == nil && name != "" {
		return fmt.Sprintf("context %s (%s)", name, cfg.Host)
	}
	return cfg.Host // in a pod: no kubeconfig
}

// named returns the cluster as the end of a prompt.
func (f *clusterFlags) named() string {
	if target := f.target(); target != "" {
		return ", " + target
	}
	return ""
}

func (f *clusterFlags) unread(err error) error {
	file := cmp.Or(f.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	out := &fault.Error{Reason: fault.InvalidInput, Op: "read the kubeconfig", Subject: file, Err: err,
		Hint: "name one with --kubeconfig or KUBECONFIG, and a context in it with --context"}
	switch {
	case clientcmd.IsEmptyConfig(err):
		out.Reason, out.Err = fault.NotFound, errors.New("it is not there, or names no cluster")
	case errors.Is(err, os.ErrNotExist), strings.HasSuffix(err.Error(), "does not exist"):
		out.Reason = fault.NotFound // the file, its content, or the context
	case errors.Is(err, os.ErrPermission):
		out.Reason = fault.Storage
	}
	return out
}

// isNamed reports whether flags select the cluster: then the command needs it.
func (f *clusterFlags) isNamed() bool { return f.kubeconfig != "" || f.context != "" }

func (f *clusterFlags) client() (client.Client, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, clusterstate.Fault("reach the cluster", err)
	}
	return client.WithFieldOwner(c, fieldManager), nil
}

// ownOperator refuses a namespace if the cluster's operator is in another one: its rights have one name in a cluster.
func (f *clusterFlags) ownOperator(ctx context.Context, c client.Reader, op string) error {
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: operatorDeployment}}
	if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(b), b)); err != nil {
		return clusterstate.Fault("read "+describeObject(b), err)
	}
	for _, s := range b.Subjects {
		if s.Name == operatorDeployment && s.Namespace != f.namespace {
			return fault.Errorf(fault.Refused, op, "the operator of namespace "+f.namespace, fmt.Sprintf("add -n %s; "+
				"to move the operator, delete it there first: `vdoctl delete --operator -n %[1]s`", s.Namespace),
				"the operator is in namespace %s, and a cluster has one (%s)", s.Namespace, describeObject(b))
		}
	}
	return nil
}

// namespaceEnds returns a fault if the namespace is being deleted and has a VDOConfig. Its finalizer waits for an
// operator that is deleted too.
func namespaceEnds(ctx context.Context, c client.Reader, namespace string) error {
	var in corev1.Namespace
	var configs v1alpha1.VDOConfigList
	err := errors.Join(c.Get(ctx, client.ObjectKey{Name: namespace}, &in),
		c.List(ctx, &configs, client.InNamespace(namespace)))
	if err != nil || in.DeletionTimestamp == nil || len(configs.Items) == 0 {
		return nil //nolint:nilerr // the commands report what they cannot read
	}
	name := configs.Items[0].Name
	return fault.Errorf(fault.Conflict, "use", "Namespace "+namespace, "end the wait, which leaves the drivers installed: "+
		"`kubectl -n "+namespace+" patch vdoconfig "+name+" --type merge -p '{\"metadata\":{\"finalizers\":null}}'`; "+
		"then `vdoctl deploy BUNDLE -f FILE`, with which the operator adopts the drivers",
		"it is being deleted, and waits for VDOConfig %s, whose operator is deleted too", name)
}

const fieldManager = "vdoctl"

func dry(c client.Client, dryRun bool) client.Client {
	if dryRun {
		return client.NewDryRunClient(c)
	}
	return c
}

// scheme is client-go's own, since to fill another one takes a tenth of the program's start.
var scheme = func() *runtime.Scheme {
	s := clientgoscheme.Scheme
	utilruntime.Must(errors.Join(v1alpha1.AddToScheme(s), airship.AddToScheme(s)))
	return s
}()

// tracing prints requests and answers. It never prints bodies, and few headers: all others may have passwords, tokens
// and sessions.
type tracing struct {
	level int // 0 for none, 1 for a line each, 2 for the headers in tracedHeaders too
	to    io.Writer
}

// tracedHeaders identify the server and the kind of answer.
var tracedHeaders = []string{"Content-Length", "Content-Type", "Retry-After", "Server", "Via"}

func (t *tracing) wrap(next http.RoundTripper) http.RoundTripper {
	if t.level < 1 {
		return next
	}
	return traced{t, next}
}

type traced struct {
	*tracing

	next http.RoundTripper
}

func (t traced) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := time.Now()
	res, err := t.next.RoundTrip(req)
	line := fmt.Sprintf("%s %s ", req.Method, req.URL.Redacted())
	if err != nil {
		line += err.Error()
	} else {
		line += res.Status
	}
	line += fmt.Sprintf(" in %d ms\n", time.Since(begun).Milliseconds())
	if err == nil && t.level > 1 {
		for _, name := range tracedHeaders {
			if value := res.Header.Get(name); value != "" {
				line += fmt.Sprintf("  %s: %s\n", name, value)
			}
		}
	}
	_, _ = io.WriteString(t.to, line) // one write, since requests run in parallel
	return res, err
}
