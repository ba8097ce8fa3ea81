package render

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func (f *finding) workload() {
	content, _, _ := unstructured.NestedFieldNoCopy(f.object.Object, "spec", "template")
	template, ok := content.(map[string]any)
	if !ok {
		f.add("has no pod template")
		return
	}
	as(f, template, true, func(f *finding, t *corev1.PodTemplateSpec) {
		p := f.ceiling.Pods[RefOf(f.object).String()]
		f.pods(p, t.Spec)
		for _, v := range t.Spec.Volumes {
			f.volume(p, v)
		}
		for _, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
			f.container(p, c)
			if _, err := f.source.digest(c.Image); err != nil {
				op, hint := cmp.Or(f.op, "pin image"), cmp.Or(f.hint, fault.HintOf(err))
				f.all = append(f.all, fault.Errorf(fault.Untrusted, op, f.subject, hint,
					"container %s has image %q, which the bundle does not hold", c.Name, c.Image))
			}
		}
	})
}

func (f *finding) pods(p drivers.Pods, spec corev1.PodSpec) {
	f.when(len(spec.Containers) == 0, "has no container")
	for _, account := range []string{spec.ServiceAccountName, spec.DeprecatedServiceAccount} {
		f.when(account != "" && account != p.Account, "runs as ServiceAccount %s", account)
	}
	f.when(spec.HostNetwork && !p.HostNetwork, "uses the node's network")
	f.when(spec.HostPID || spec.HostIPC, "sees the node's processes")
	f.when(spec.NodeName != "" || len(spec.EphemeralContainers) > 0 || len(spec.HostAliases) > 0,
		"names a node, host aliases or ephemeral containers")
	if sc := spec.SecurityContext; sc != nil {
		f.when(len(sc.Sysctls) > 0, "sets sysctls")
		f.when(hostProcess(sc.WindowsOptions) && !p.HostProcess, "runs as a process of the node")
	}
}

func hostProcess(w *corev1.WindowsSecurityContextOptions) bool {
	return w != nil && ptr.Deref(w.HostProcess, false)
}

func (f *finding) volume(p drivers.Pods, v corev1.Volume) {
	switch {
	case v.HostPath != nil:
		f.when(!slices.Contains(p.HostPaths, v.HostPath.Path), "mounts %s of the node", v.HostPath.Path)
	case v.Secret != nil:
		f.when(!slices.Contains(p.Secrets, v.Secret.SecretName), "mounts Secret %s", v.Secret.SecretName)
	case v.ConfigMap != nil, v.EmptyDir != nil:
	default:
		f.add("has volume %s of a kind that the driver does not need", v.Name)
	}
}

func (f *finding) container(p drivers.Pods, c corev1.Container) {
	f.when(len(c.EnvFrom) > 0, "container %s takes its environment from an object", c.Name)
	for _, e := range c.Env {
		f.when(e.ValueFrom != nil && e.ValueFrom.FieldRef == nil && e.ValueFrom.ResourceFieldRef == nil,
			"container %s takes variable %s from an object", c.Name, e.Name)
		f.when(divertsTraffic(e.Name), "container %s sets variable %s, which overrides the configuration", c.Name, e.Name)
	}
	f.commands(p, c)
	sc := c.SecurityContext
	if sc == nil {
		return
	}
	privileged := slices.Contains(p.Privileged, c.Name)
	f.when(ptr.Deref(sc.Privileged, false) && !privileged, "container %s is privileged", c.Name)
	f.when(ptr.Deref(sc.AllowPrivilegeEscalation, false) && !privileged, "container %s may gain privileges", c.Name)
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			f.when(!slices.Contains(p.Capabilities[c.Name], string(capability)),
				"container %s has capability %s", c.Name, capability)
		}
	}
	f.when(ptr.Deref(sc.ProcMount, corev1.DefaultProcMount) != corev1.DefaultProcMount,
		"container %s sees all of /proc", c.Name)
	f.when(hostProcess(sc.WindowsOptions) && !p.HostProcess, "container %s runs as a process of the node", c.Name)
}

// flag is an argument as drivers use them: no character with a meaning to a shell.
var flag = regexp.MustCompile(`^--?[A-Za-z0-9][A-Za-z0-9_-]*(=[A-Za-z0-9._,:/\\$()=*+-]*)?$`)

// commands allows the images' own programs with flags, and neither hooks nor other programs, even if the matrix
// lists them.
func (f *finding) commands(p drivers.Pods, c corev1.Container) {
	f.when(c.Lifecycle != nil, "container %s has hooks that run when it starts or stops", c.Name)
	f.when(len(c.VolumeDevices) > 0, "container %s has block devices", c.Name)
	f.when(len(c.Command) > 0 && !runs(p, c.Command), "container %s runs %q", c.Name, strings.Join(c.Command, " "))
	for _, a := range c.Args {
		f.when(!flag.MatchString(a), "container %s has the argument %q, which is not a flag", c.Name, a)
	}
	probes := []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}
	for i, name := range []string{"liveness", "readiness", "startup"} {
		probe := probes[i]
		if probe == nil {
			continue
		}
		if probe.Exec != nil && !runs(p, probe.Exec.Command) {
			f.add("container %s runs %q as its %s probe", c.Name, strings.Join(probe.Exec.Command, " "), name)
		}
		f.when((probe.HTTPGet != nil && elsewhere(probe.HTTPGet.Host)) ||
			(probe.TCPSocket != nil && elsewhere(probe.TCPSocket.Host)),
			"container %s has a %s probe of another host", c.Name, name)
	}
}

// elsewhere reports whether a probe's host is neither the pod's nor the node's own.
func elsewhere(host string) bool {
	return host != "" && host != "localhost" && host != "127.0.0.1" && host != "::1"
}

// runs reports whether a command is a known one: whole, or followed by flags.
func runs(p drivers.Pods, command []string) bool {
	if slices.Contains(p.Commands, strings.Join(command, " ")) {
		return true
	}
	return len(command) > 0 && slices.Contains(p.Commands, command[0]) &&
		!slices.ContainsFunc(command[1:], func(a string) bool { return !flag.MatchString(a) })
}

// divertsTraffic reports whether a variable can redirect logins: VSPHERE_… and VCENTER_… override both drivers'
// files, and every Go program heeds proxies.
func divertsTraffic(name string) bool {
	upper := strings.ToUpper(name)
	return (strings.HasPrefix(upper, "VSPHERE_") && upper != "VSPHERE_CSI_CONFIG") ||
		strings.HasPrefix(upper, "VCENTER_") || strings.HasSuffix(upper, "_PROXY") ||
		strings.HasPrefix(upper, "LD_") || upper == "SSL_CERT_FILE" || upper == "SSL_CERT_DIR"
}
