package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2" // the cloud provider's
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// setting is one setting of a driver's configuration in YAML or INI, since the cloud provider reads both. Names are
// in lower case without hyphens: secret-name and secretName are the same.
type setting struct {
	section string // such as "global", "vcenter", "labels"
	name    string // of the section, unchanged: a vCenter's
	key     string // "" for the section itself
	value   string // lists joined with commas
	written string // the key, unchanged
}

// String returns the name of a setting, without its value, which may be secret.
func (s setting) String() string {
	if s.name == "" {
		return "[" + s.section + "] " + s.written
	}
	return fmt.Sprintf("[%s %q] %s", s.section, s.name, s.written)
}

const maxConfBytes = 1 << 20 // the limit of the API server for an object

// readSettings reads a configuration as the driver does: YAML if that has settings, else INI.
func readSettings(conf []byte) []setting {
	if len(conf) > maxConfBytes {
		return nil
	}
	if all := readYAML(conf); len(all) > 0 {
		return all
	}
	return readINI(conf)
}

func normal(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "-", ""))
	if name == "virtualcenter" {
		return "vcenter"
	}
	return name
}

func readINI(conf []byte) []setting {
	var all []setting
	var section, name string
	for line := range strings.Lines(string(conf)) {
		line = strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(line, "["); ok {
			head = strings.TrimSpace(head)
			at := strings.IndexAny(head+"]", " \t\"]")
			section, name = normal(head[:at]), strings.TrimSpace(strings.TrimSuffix(iniUnquote(head[at:]), "]"))
			all = append(all, setting{section: section, name: name})
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); ok && key != "" && !strings.ContainsAny(key[:1], "#;") {
			all = append(all, setting{section, name, normal(key), iniUnquote(value), key})
		}
	}
	return all
}

func readYAML(conf []byte) []setting {
	var sections map[string]yamlSection
	_ = yaml.Unmarshal(conf, &sections) // what is no YAML has no sections
	var all []setting
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		for _, key := range slices.Sorted(maps.Keys(sections[section])) {
			value := sections[section][key]
			if value.below == nil {
				all = append(all, setting{normal(section), "", normal(key), string(value.text), key})
				continue
			}
			all = append(all, setting{section: normal(section), name: key})
			for _, k := range slices.Sorted(maps.Keys(value.below)) {
				all = append(all, setting{normal(section), key, normal(k), string(value.below[k]), k})
			}
		}
	}
	return all
}

// yamlSection is empty for a value that is no map, because the cloud provider ignores unknown ones.
type yamlSection map[string]yamlValue

// yamlValue is a map, such as a vCenter's, or a text.
type yamlValue struct {
	below map[string]yamlText
	text  yamlText
}

// yamlText is a value as written, since a password may look like a number. Lists are joined with commas.
type yamlText string

func (s *yamlSection) UnmarshalYAML(read func(any) error) error {
	_ = read((*map[string]yamlValue)(s))
	return nil
}

func (v *yamlValue) UnmarshalYAML(read func(any) error) error {
	if read(&v.below) == nil {
		return nil
	}
	return read(&v.text)
}

func (t *yamlText) UnmarshalYAML(read func(any) error) error {
	var items []string
	if read((*string)(t)) != nil && read(&items) == nil {
		*t = yamlText(strings.Join(items, ","))
	}
	return nil
}

// keptElsewhere are keys that need no equal key in ours: our own Secrets have credentials, servers identify
// vCenters, and the cluster id is never lost.
var keptElsewhere = []string{"user", "password", "secretname", "secretnamespace", "server", "secretsdirectory", "clusterid"}

// dropped returns the settings of a configuration that the other one lacks. A setting for all vCenters counts as
// kept if it is in a vCenter's section.
func dropped(was, is []byte) []string {
	have := map[setting]bool{}
	for _, s := range readSettings(is) {
		have[place(s)] = true
	}
	var lost []string
	for _, s := range readSettings(was) {
		if !have[place(s)] && !slices.Contains(keptElsewhere, s.key) && s.value != "" && s.value != "false" {
			lost = append(lost, s.String())
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}

func place(s setting) setting {
	if s.section == "vcenter" {
		s.section = "global"
	}
	return setting{section: s.section, key: s.key}
}

// samples are the placeholder vCenters in upstream's manifest, with their servers. A user may have put a real server
// under such a name.
var samples = map[string]string{"your-vcenter-name-here": "10.0.0.1", "could-be-a-tenant-label": "1.2.3.4"}

// searched returns the cloud provider's datacenters by vCenter; an empty list means all.
func searched(conf []byte) map[string][]string {
	settings := readSettings(conf)
	lists, everywhere := map[string]string{}, ""
	for _, s := range settings {
		switch {
		case s.section == "global" && s.key == "datacenters":
			everywhere = s.value
		case s.section == "vcenter" && s.key == "datacenters":
			lists[s.name] = s.value
		}
	}
	all := map[string][]string{}
	for name, server := range servers(settings) {
		if sample, is := samples[name]; is && (server == sample || server == name) {
			continue
		}
		host, datacenters := v1alpha1.CanonicalHost(server), datacenterList(cmp.Or(lists[name], everywhere))
		if was, twice := all[host]; twice { // it looks in the lists of all sections; a section without one means all
			datacenters = bothLists(was, datacenters)
		}
		all[host] = datacenters
	}
	return all
}

func bothLists(a, b []string) []string {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// servers returns a configuration's servers by section. The one of section Global is a vCenter too if no section has
// its name (validateConfig of cloud-provider-vsphere).
func servers(settings []setting) map[string]string {
	all, global := map[string]string{}, ""
	for _, s := range settings {
		switch {
		case s.section == "global" && s.key == "server":
			global = s.value
		case s.section == "vcenter" && s.key == "server" && s.value != "":
			all[s.name] = s.value
		case s.section == "vcenter" && s.name != "" && all[s.name] == "":
			all[s.name] = s.name
		}
	}
	if global != "" && all[global] == "" {
		all[global] = global
	}
	return all
}

// NamesVCenters reports whether a cloud provider's configuration names a vCenter; an unreadable one does not.
func NamesVCenters(config []byte) bool { return len(servers(readSettings(config))) > 0 }

func datacenterList(text string) []string {
	var all []string
	for d := range strings.SplitSeq(text, ",") {
		if d = strings.Trim(strings.TrimSpace(d), "/"); d != "" {
			all = append(all, d)
		}
	}
	return all
}

// drops records the settings of an existing configuration that ours lacks, unless that is kept.
func (r *renderer) drops(kept bool, whose string, was, is []byte) {
	if kept || len(was) == 0 {
		return
	}
	for _, lost := range dropped(was, is) {
		r.dropped = append(r.dropped, whose+": "+lost)
	}
}

// dropsStates records existing feature states with another value in the release.
func (r *renderer) dropsStates(s *source) {
	states, _, _ := unstructured.NestedStringMap(s.find("ConfigMap", FeatureStates).Object, "data")
	for _, name := range slices.Sorted(maps.Keys(r.in.Cluster.ExistingFeatureStates)) {
		was := string(r.in.Cluster.ExistingFeatureStates[name])
		if is, known := states[name]; known && is != was {
			r.dropped = append(r.dropped, fmt.Sprintf("storage driver's feature state %s: %s becomes %s", name, was, is))
		}
	}
}
