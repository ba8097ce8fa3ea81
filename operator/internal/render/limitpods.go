package render

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// mountPrefix is where ConfigMaps and empty folders may be mounted, each in a folder of its
// own: no image and no manifest has anything there. Anywhere else a mount would take the
// place of a program, a library, the configuration or the account's token.
const mountPrefix = "/opt/site/"

// podFields are those of pods that may be changed; some of them are held further.
var podFields = []string{
	"containers", "initContainers", "volumes", "securityContext",
	"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "automountServiceAccountToken",
	"affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "schedulerName",
	"priorityClassName", "priority", "preemptionPolicy", "terminationGracePeriodSeconds",
}

// containerFields are those of containers that may be changed; some of them are held
// further. terminationMessagePath is none: a file is mounted there.
var containerFields = []string{
	"args", "env", "image", "imagePullPolicy", "resources", "resizePolicy", "ports", "securityContext",
	"volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "terminationMessagePolicy",
}

// tunable are the variables that may be set, to a value that is written there: how much,
// how often, how loudly. All others say where something is or which code runs, or are
// loaders' and runtimes' own.
var tunable = []string{
	"LOGGER_LEVEL", "X_CSI_LOG_LEVEL", "MAX_VOLUMES_PER_NODE", "NODEGETINFO_WATCH_TIMEOUT_MINUTES",
	"FULL_SYNC_INTERVAL_MINUTES", "INCLUSTER_CLIENT_QPS", "INCLUSTER_CLIENT_BURST",
	"X_CSI_SERIAL_VOL_ACCESS_TIMEOUT", "X_CSI_SPEC_DISABLE_LEN_CHECK", "X_CSI_SPEC_REQ_VALIDATION",
	"GOGC", "GOMAXPROCS", "GOMEMLIMIT",
}

// fields refuses changes of what is not listed.
func (l *limits) fields(of string, may []string, was, is map[string]any) {
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(may, k) && !reflect.DeepEqual(was[k], is[k]) {
			l.refuse("it changes %s%s", k, of)
		}
	}
}

// volumes lets ConfigMaps and empty folders be added and nothing else, and returns the
// names of the volumes of other kinds, whose mounts are held to the manifest's.
func (l *limits) volumes(was, is map[string]any) (guarded map[string]bool) {
	before, after, guarded := named(was["volumes"]), named(is["volumes"]), map[string]bool{}
	for name, v := range after {
		_, isMap := v["configMap"]
		_, isEmpty := v["emptyDir"]
		if isMap || isEmpty {
			if _, was := before[name]; was && !reflect.DeepEqual(before[name], v) {
				l.refuse("it puts another volume in the place of %s", name)
			}
			continue
		}
		guarded[name] = true
		if !reflect.DeepEqual(before[name], v) {
			l.refuse("it adds or changes volume %s, which is neither a ConfigMap nor an emptyDir", name)
		}
	}
	return guarded
}

// mounts lets no mount of the manifest go, and others be below [mountPrefix] alone.
func (l *limits) mounts(name string, was, is map[string]any, guarded map[string]bool) {
	among := func(mounts []any, m any) bool {
		return slices.ContainsFunc(mounts, func(o any) bool { return reflect.DeepEqual(o, m) })
	}
	before, after := list(was["volumeMounts"]), list(is["volumeMounts"])
	for _, m := range before {
		if mount, _ := m.(map[string]any); !among(after, m) {
			l.refuse("it takes away or changes what is mounted at %v in container %s", mount["mountPath"], name)
		}
	}
	for _, m := range after {
		if among(before, m) {
			continue
		}
		mount, _ := m.(map[string]any)
		volume, _ := mount["name"].(string)
		at, _ := mount["mountPath"].(string)
		switch {
		case guarded[volume]:
			l.refuse("it mounts %s at %s in container %s", volume, at, name)
		case !below(mountPrefix, at):
			l.refuse("it mounts %s at %s in container %s, and not below %s", volume, at, name, mountPrefix)
		}
		if propagation, ok := mount["mountPropagation"]; ok && propagation != string(corev1.MountPropagationNone) {
			l.refuse("it has mounts of container %s seen by the node", name)
		}
	}
}

// below tells whether a path, as it is written, leads to something below a folder.
func below(folder, written string) bool {
	return strings.HasPrefix(written, folder) && len(written) > len(folder) && path.Clean(written) == written && !strings.Contains(written, `\`)
}

func (l *limits) variables(name string, was, is map[string]any) {
	before, after := named(was["env"]), named(is["env"])
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, variable := range slices.Sorted(maps.Keys(all)) {
		e, there := after[variable]
		_, from := e["valueFrom"]
		switch {
		case reflect.DeepEqual(before[variable], e), slices.Contains(tunable, variable) && there && !from:
		case strings.EqualFold(variable, "VSPHERE_CSI_CONFIG"):
			l.refuse("it changes where container %s finds its configuration", name)
		default:
			l.refuse("it sets or takes away variable %s of container %s; patches set %s", variable, name, strings.Join(tunable, ", "))
		}
	}
	if len(list(is["env"])) > len(after) {
		l.refuse("it has a variable of container %s twice", name)
	}
}

// networkFixed are keys of Antrea's configurations that say whom its programs, which are
// privileged, take for the API server and for each other.
var networkFixed = []string{
	"kubeAPIServerOverride", "clientConnection", "antreaClientConnection", "hostProcPathPrefix", "cniSocket", "ovsRunDir",
	"selfSignedCert", "clientCAFile", "tlsMinVersion", "tlsCipherSuites", "apiPort", "multicluster", "auditLogging",
}

// networkConfig holds Antrea's ConfigMap: the list of programs that nodes run for each pod,
// and whom agents and controller ask. All else of it may be tuned.
func (l *limits) networkConfig() {
	if l.was.GetKind()+" "+l.was.GetName() != "ConfigMap "+drivers.AntreaConfigMap {
		return
	}
	was, is := data(l.was.Object), data(l.is.Object)
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if was[key] == is[key] {
			continue
		}
		if !strings.HasSuffix(key, ".conf") {
			l.refuse("it changes %s, by which nodes run programs", key)
			continue
		}
		var before, after map[string]any
		if yaml.Unmarshal([]byte(was[key]), &before) != nil || yaml.UnmarshalStrict([]byte(is[key]), &after) != nil {
			l.refuse("%s cannot be read", key)
			continue
		}
		for _, fixed := range networkFixed {
			if v := after[fixed]; v != nil && !reflect.DeepEqual(before[fixed], v) { // without it, the program's default
				l.refuse("it changes %s in %s", fixed, key)
			}
		}
	}
}

// data are a ConfigMap's.
func data(o map[string]any) map[string]string {
	all := map[string]string{}
	entries, _ := o["data"].(map[string]any)
	for k, v := range entries {
		all[k], _ = v.(string)
	}
	return all
}
