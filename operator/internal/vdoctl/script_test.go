package vdoctl_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/cli"
	_ "github.com/vmware/govmomi/cli/permissions" // govc's commands
	_ "github.com/vmware/govmomi/cli/role"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// update rewrites what scripts compare with.
var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

func TestMain(m *testing.M) {
	govc := func() { os.Exit(cli.Run(os.Args[1:])) } // as its own main, whose module cannot be had at this version
	testscript.Main(stopping{m}, map[string]func(){"govc": govc})
}

// stopping puts the built vdoctl into PATH, and stops the clusters that the tests share.
type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	code := toolchain.Run(s.m, func(dir string) {
		_ = os.Symlink("vdoctl", filepath.Join(dir, "kubectl-vdo"))
		_ = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}, "./operator/cmd/vdoctl", "./bundler/cmd/vdo-bundle")
	for _, c := range []*cluster.Cluster{shared.cluster, whole.cluster} {
		if c != nil {
			c.Stop()
		}
	}
	return code
}

var shared struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

// control is the control plane of the package, with the project's CRDs.
func control(t *testing.T) *cluster.Cluster {
	shared.once.Do(func() {
		shared.cluster, shared.err = cluster.Start(context.Background(), cluster.Options{Progress: os.Stderr})
		if shared.err == nil {
			shared.err = cluster.InstallCRDs(shared.cluster.Config())
		}
	})
	require.NoError(t, shared.err)
	return shared.cluster
}

func clientOf(t *testing.T, c *cluster.Cluster) client.Client {
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	require.NoError(t, airship.AddToScheme(s))
	return must.Have(client.New(c.Config(), client.Options{Scheme: s}))(t)
}

// vcenters are the vCenters of the scripts: east has zones, west has none.
func vcenters(t *testing.T) (east, west *vcsim.VCenter) {
	east, west = vcsim.Start(t, vcsim.Options{}), vcsim.Start(t, vcsim.Options{Version: "7.0.3"})
	for path, tag := range map[string]string{"/site/prod/east": "north", "/lab": "south"} {
		require.NoError(t, east.Tag(t.Context(), "k8s-region", tag, path))
		require.NoError(t, east.Tag(t.Context(), "k8s-zone", tag+"-1", path))
	}
	return east, west
}

// site is a configuration with the vCenters and the account.
func site(east, west *vcsim.VCenter, password string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc, namespace: vmware-system-vdo}
type: kubernetes.io/basic-auth
stringData: {username: %q, password: %q}
`, vcsim.Admin.Username, password) + withoutSecret(east, west)
}

func withoutSecret(east, west *vcsim.VCenter) (out string) {
	for i, v := range []*vcsim.VCenter{east, west} {
		out += fmt.Sprintf(`---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: %s, namespace: vmware-system-vdo}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s"}
`, []string{"east", "west"}[i], v.Host, v.Port, v.SHA256)
	}
	return out
}

// Configurations of drivers that use both vCenters, one of them, and one that is not there.
const (
	vdoConfig = `---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo, namespace: vmware-system-vdo}
spec:
  cloudProvider: {vsphereCloudConfigs: [east]`
	inZones      = ", topology: {zone: k8s-zone, region: k8s-region}}\n"
	categories   = ", topologyCategories: [k8s-region, k8s-zone]}\n"
	bothVCenters = vdoConfig + inZones + "  storageProvider: {vsphereCloudConfigs: [east, west]" + categories
	eastAlone    = vdoConfig + inZones + "  storageProvider: {vsphereCloudConfig: east" + categories
	nope         = vdoConfig + "}\n  storageProvider: {vsphereCloudConfig: nope}\n"
)

func TestScripts(t *testing.T) {
	c := control(t)
	east, west := vcenters(t)
	populate(t, clientOf(t, c), east)
	east.SetPassword("k8s@corp.example", "Corp-canary#4")
	require.NoError(t, east.Grant(t.Context(), "k8s@corp.example", "seeing", "/lab/network/VM Network", false))
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "users-"}}
	require.NoError(t, clientOf(t, c).Create(t.Context(), users))
	shop := &shop{t: t, k: clientOf(t, c), ns: users.Name}
	shop.add("east", east)
	shop.add("east-again", east)
	shop.create(&v1alpha1.VDOConfig{ObjectMeta: shop.meta("vdo"), Spec: v1alpha1.VDOConfigSpec{
		CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"east-again"}},
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"}}})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GOGC", "off")
			env.Setenv("ADMIN_KUBECONFIG", c.Kubeconfig())
			env.Setenv("USERNAME", vcsim.Admin.Username)
			env.Setenv("USERS", users.Name)
			env.Setenv("ADMINISTRATOR", vcsim.Administrator.Username)
			env.Setenv("EAST", east.Address())
			for name, data := range map[string]string{
				"both.yaml": site(east, west, vcsim.Admin.Password) + bothVCenters, "east.yaml": site(east, west, vcsim.Admin.Password) + eastAlone,
				"turned.yaml": site(east, west, vcsim.Admin.Password) + bothVCenters + `  preflight:
    checks:
      - {id: topology-category, action: Warn, reason: west is made ready on Monday}
      - {id: vcenter-excess, action: Disabled, reason: a lab}
`,
				"nope.yaml":   site(east, west, vcsim.Admin.Password) + nope,
				"scheme.yaml": strings.ReplaceAll(site(east, west, vcsim.Admin.Password), "vcIp: ", "vcIp: https://") + eastAlone,
				"wrong.yaml":  site(east, west, "canary-Wrong#1") + eastAlone, "password": vcsim.Admin.Password + "\n", "admin": vcsim.Administrator.Password + "\n", "wrong": "canary-Wrong#3\n", "corp": "Corp-canary#4\n",
				"nosecret.yaml": withoutSecret(east, west) + eastAlone,
			} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(data), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program that has to end with a code: exits CODE PROGRAM ARGS…
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}

// populate makes nodes with VMs of a vCenter behind them, two that are well and one whose
// VM is not as it should be, and a StorageClass.
func populate(t *testing.T, c client.Client, v *vcsim.VCenter) {
	east := must.Have(v.VMs(t.Context(), "/site/prod/east"))(t)
	lab := must.Have(v.VMs(t.Context(), "/lab"))(t)
	for i, vm := range east {
		require.NoError(t, v.Ready(vm.Path, fmt.Sprintf("node-%d", i)))
	}
	withNodes(t, c, append(east, lab[0]))
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Provisioner: "csi.vsphere.vmware.com", Parameters: map[string]string{"storagePolicyName": "no-such-policy"}}
	require.NoError(t, c.Create(t.Context(), class))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.Background(), class)) })
}

// withNodes makes the nodes of VMs, for as long as the test runs.
func withNodes(t *testing.T, c client.Client, vms []vcsim.VM) {
	for i, vm := range vms {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Spec: corev1.NodeSpec{ProviderID: "vsphere://" + vm.UUID}}
		if i == 0 {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		require.NoError(t, c.Create(t.Context(), n))
		t.Cleanup(func() { require.NoError(t, c.Delete(context.Background(), n)) })
		n.Status.NodeInfo.SystemUUID, n.Status.NodeInfo.KubeletVersion = vm.UUID, "v1.36.3"
		require.NoError(t, c.Status().Update(t.Context(), n))
	}
}

func TestARefusedPasswordIsNotTriedAgain(t *testing.T) {
	s := newShop(t)
	east, _ := vcenters(t)
	ctx := t.Context()
	s.run("preflight").is(4, "--from-file site.yaml")

	secret := &corev1.Secret{ObjectMeta: s.meta("vc"), StringData: map[string]string{"username": vcsim.Admin.Username, "password": "refused-canary"}}
	require.NoError(t, s.k.Create(ctx, secret))
	vcc := s.add("east", east)
	vcc.Status.ObservedGeneration = vcc.Generation
	vcc.Status.CredentialsVersion = string(secret.UID) + "/" + secret.ResourceVersion
	vcc.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Unauthorized",
		Message: "the vCenter refuses the user name or password", LastTransitionTime: metav1.Now()}}
	require.NoError(t, s.k.Status().Update(ctx, vcc))
	before := east.Logins(vcsim.Admin.Username)
	out := s.run("preflight", "--only", "vcenter-account").is(8, "vdoctl does not try it again")
	require.NotContains(t, out, "canary")
	require.Equal(t, before, east.Logins(vcsim.Admin.Username))

	secret.StringData = map[string]string{"password": vcsim.Admin.Password}
	require.NoError(t, s.k.Update(ctx, secret))
	s.ok("preflight", "--only", "vcenter-account,vcenter-version")
}

// Each command of the page is one of the program, with flags that it has. TestFirstRun does the first steps.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	blocks := must.Have(readme.Blocks("../../docs/vdoctl.md", "vdoctl"))(t)
	typed := 0
	for _, b := range blocks {
		for _, c := range b.Commands {
			if strings.HasPrefix(c.Text, "vdoctl ") {
				out, err := exec.CommandContext(t.Context(), "bash", "-ec", c.Text+" --help").CombinedOutput()
				require.NoError(t, err, "%s\n%s", c, out)
				typed++
			}
		}
	}
	require.Greater(t, typed, 10)
}

// The real kubectl finds the program by its name in the PATH, hands its arguments on, and ends
// with its exit code.
func TestKubectlCallsItAsAPlugin(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	kubectl := toolchain.Path(t, "kubectl")
	plugin := must.Have(exec.LookPath("kubectl-vdo"))(t)
	run := func(args ...string) result {
		cmd := exec.CommandContext(t.Context(), kubectl, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf, "PATH="+filepath.Dir(plugin)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return ended(t, string(out), err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"plugin", "list"}, 0, plugin},
		{[]string{"vdo", "status", "--help"}, 0, "\n  kubectl vdo status [flags]\n"},
		{[]string{"vdo", "upgrade", "list", "-n", s.ns, "-o", "json"}, 4, `"exitCode": 4`},
		{[]string{"vdo", "statsu"}, 2, "did you mean status?\nhint: see `kubectl vdo --help`"},
		{[]string{"vdo", "delete", "--driver"}, 2, "unknown flag: --driver: did you mean --drivers?\n"},
	} {
		run(c.args...).is(c.code, c.want)
	}
}
