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
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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
	klog.SetOutput(io.Discard) // the failing command reports errors; a library's log lines would interleave
	klog.LogToStderr(false)
	a := &app{
		in: os.Stdin, out: command.Stdout(), err: os.Stderr, terminal: term.IsTerminal(int(os.Stdout.Fd())), getenv: os.LookupEnv, now: time.Now, logins: &logins.Logins{},
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
	var shown *resultError
	if errors.As(err, &shown) {
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
