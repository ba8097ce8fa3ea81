package render

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func (s *source) lintPods(p drivers.Pods, o *unstructured.Unstructured, f *finding) {
	template, ok, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !ok {
		f.add("has no pod template")
		return
	}
	var t corev1.PodTemplateSpec
	if !as(template, &t, f) {
		return
	}
	lintPodSpec(p, t.Spec, f)
	for _, v := range t.Spec.Volumes {
		lintVolume(p, v, f)
	}
	for _, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
		lintContainer(p, c, f)
		if _, err := s.digest(c.Image); err != nil {
			f.all = append(f.all, err)
		}
	}
}

func lintPodSpec(p drivers.Pods, spec corev1.PodSpec, f *finding) {
	if len(spec.Containers) == 0 {
		f.add("has no container")
	}
	for _, account := range []string{spec.ServiceAccountName, spec.DeprecatedServiceAccount} {
		if account != "" && account != p.Account {
			f.add("runs as ServiceAccount %s", account)
		}
	}
	if spec.HostNetwork && !p.HostNetwork {
		f.add("uses the node's network")
	}
	if spec.HostPID || spec.HostIPC {
		f.add("sees the node's processes")
	}
	if spec.NodeName != "" || len(spec.EphemeralContainers) > 0 || len(spec.HostAliases) > 0 {
		f.add("names a node, host aliases or ephemeral containers")
	}
	if sc := spec.SecurityContext; sc != nil {
		if len(sc.Sysctls) > 0 {
			f.add("sets sysctls")
		}
		if hostProcess(sc.WindowsOptions) && !p.HostProcess {
			f.add("runs as a process of the node")
		}
	}
}

func hostProcess(w *corev1.WindowsSecurityContextOptions) bool {
	return w != nil && w.HostProcess != nil && *w.HostProcess
}

func lintVolume(p drivers.Pods, v corev1.Volume, f *finding) {
	switch {
	case v.HostPath != nil:
		if !slices.Contains(p.HostPaths, v.HostPath.Path) {
			f.add("mounts %s of the node", v.HostPath.Path)
		}
	case v.Secret != nil:
		if !slices.Contains(p.Secrets, v.Secret.SecretName) {
			f.add("mounts Secret %s", v.Secret.SecretName)
		}
	case v.ConfigMap != nil, v.EmptyDir != nil:
	default:
		f.add("has volume %s of a kind that the driver does not need", v.Name)
	}
}

func lintContainer(p drivers.Pods, c corev1.Container, f *finding) {
	if len(c.EnvFrom) > 0 {
		f.add("container %s takes its environment from an object", c.Name)
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef == nil && e.ValueFrom.ResourceFieldRef == nil {
			f.add("container %s takes variable %s from an object", c.Name, e.Name)
		}
		if divertsTraffic(e.Name) {
			f.add("container %s sets variable %s, which overrides the configuration", c.Name, e.Name)
		}
	}
	lintCommands(p, c, f)
	sc := c.SecurityContext
	if sc == nil {
		return
	}
	if sc.Privileged != nil && *sc.Privileged && !slices.Contains(p.Privileged, c.Name) {
		f.add("container %s is privileged", c.Name)
	}
	if sc.AllowPrivilegeEscalation != nil && *sc.AllowPrivilegeEscalation && !slices.Contains(p.Privileged, c.Name) {
		f.add("container %s may gain privileges", c.Name)
	}
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			if !slices.Contains(p.Capabilities[c.Name], string(capability)) {
				f.add("container %s has capability %s", c.Name, capability)
			}
		}
	}
	if sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount {
		f.add("container %s sees all of /proc", c.Name)
	}
	if hostProcess(sc.WindowsOptions) && !p.HostProcess {
		f.add("container %s runs as a process of the node", c.Name)
	}
}

// flag is an argument as drivers take them: nothing that a shell would read otherwise.
var flag = regexp.MustCompile(`^--?[A-Za-z0-9][A-Za-z0-9_-]*(=[A-Za-z0-9._,:/\\$()=*+-]*)?$`)

// lintCommands keeps to the images' own programs and flags for them: whatever is
// listed, no driver has hooks, and none runs a program of the manifest's choice.
func lintCommands(p drivers.Pods, c corev1.Container, f *finding) {
	if c.Lifecycle != nil {
		f.add("container %s has hooks that run when it starts or stops", c.Name)
	}
	if len(c.VolumeDevices) > 0 {
		f.add("container %s has block devices", c.Name)
	}
	if len(c.Command) > 0 && !runs(p, c.Command) {
		f.add("container %s runs %q", c.Name, strings.Join(c.Command, " "))
	}
	for _, a := range c.Args {
		if !flag.MatchString(a) {
			f.add("container %s has the argument %q, which is not a flag", c.Name, a)
		}
	}
	for name, probe := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
		if probe == nil {
			continue
		}
		if probe.Exec != nil && !runs(p, probe.Exec.Command) {
			f.add("container %s runs %q as its %s probe", c.Name, strings.Join(probe.Exec.Command, " "), name)
		}
		if (probe.HTTPGet != nil && elsewhere(probe.HTTPGet.Host)) || (probe.TCPSocket != nil && elsewhere(probe.TCPSocket.Host)) {
			f.add("container %s has a %s probe of another host", c.Name, name)
		}
	}
}

// elsewhere tells hosts of probes that are neither the pod's nor the node's own.
func elsewhere(host string) bool {
	return host != "" && host != "localhost" && host != "127.0.0.1" && host != "::1"
}

// runs tells whether a command is one that is known: whole, or with flags behind it.
func runs(p drivers.Pods, command []string) bool {
	if slices.Contains(p.Commands, strings.Join(command, " ")) {
		return true
	}
	return len(command) > 0 && slices.Contains(p.Commands, command[0]) &&
		!slices.ContainsFunc(command[1:], func(a string) bool { return !flag.MatchString(a) })
}

// divertsTraffic tells variables that send logins elsewhere: both drivers let
// VSPHERE_… and VCENTER_… override their files, and every Go program heeds proxies.
func divertsTraffic(name string) bool {
	upper := strings.ToUpper(name)
	return (strings.HasPrefix(upper, "VSPHERE_") && upper != "VSPHERE_CSI_CONFIG") ||
		strings.HasPrefix(upper, "VCENTER_") || strings.HasSuffix(upper, "_PROXY") ||
		strings.HasPrefix(upper, "LD_") || upper == "SSL_CERT_FILE" || upper == "SSL_CERT_DIR"
}
