// Package nodeconfig writes the files that cluster nodes need to find images under their upstream
// names in a mirror. It is pure, from references to files.
//
//	containerd   REGISTRY-HOST/hosts.toml below config_path, one for each upstream host
//	crio         a file for /etc/containers/registries.conf.d
//	k3s          registries.yaml, which RKE2 reads as well
//	openshift    an ImageDigestMirrorSet
//
// The mirror has the layout of `push --layout paths` and `serve`: below one repository the upstream
// host, then the upstream path.
package nodeconfig

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
)

// Runtime is the program that pulls images on a node.
type Runtime string

// Containerd, CRIO, K3s and OpenShift are the runtimes.
const (
	Containerd Runtime = "containerd"
	CRIO       Runtime = "crio"
	K3s        Runtime = "k3s"
	OpenShift  Runtime = "openshift"
)

// Runtimes returns all runtimes, as flags write them.
func Runtimes() []string {
	return []string{string(Containerd), string(CRIO), string(K3s), string(OpenShift)}
}

// Input is the mirror, its images and how nodes reach it.
type Input struct {
	Mirror image.Reference   // the bundle's repository
	Images []image.Reference // their upstream names
	// PlainHTTP means that the mirror has no TLS.
	PlainHTTP bool
	// Only means that nodes never ask upstream.
	Only bool
	// CA is the path of the mirror's CA on the nodes; "" if they trust it.
	CA string
	// Login goes into the files of runtimes that can hold one.
	Login Login
}

// Login is a user and a password.
type Login struct{ Username, Password string }

// IsZero reports whether there is no login.
func (l Login) IsZero() bool { return l == Login{} }

func (l Login) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.Username+":"+l.Password))
}

// File is one file for the nodes or the cluster.
type File struct {
	Name   string // relative, with slashes
	Data   []byte
	Secret bool // it contains a login
}

// Write returns the files for a runtime, sorted by name.
func Write(f Runtime, in Input) ([]File, error) {
	repositories, err := mirrorset.Of(in.Images, in.Mirror)
	if err != nil {
		return nil, err
	}
	switch f {
	case Containerd:
		return in.containerd(repositories), nil
	case CRIO:
		return in.crio(repositories), nil
	case K3s:
		return in.k3s(repositories), nil
	default:
		return in.openshift(repositories)
	}
}

// hosts returns the upstream hosts of repositories, HOST/PATH.
func hosts(repositories []mirrorset.Entry) []string {
	var out []string
	for _, r := range repositories {
		host, _, _ := strings.Cut(r.Source, "/")
		out = append(out, host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (in Input) scheme() string {
	if in.PlainHTTP {
		return "http://"
	}
	return "https://"
}

// below returns the mirror's path for an upstream host.
func (in Input) below(host string) string { return in.Mirror.Path() + "/" + image.HostPath(host) }

// quote returns a string in JSON, which is also valid TOML and YAML.
func quote(s string) string {
	b, _ := json.Marshal(s) //nolint:errchkjson // of a string it does not fail
	return string(b)
}

func (in Input) containerd(repositories []mirrorset.Entry) []File {
	var out []File
	for _, host := range hosts(repositories) {
		folder := host
		if name, port, ok := strings.Cut(host, ":"); ok { // containerd writes a port between underscores
			folder = name + "_" + port + "_"
		}
		out = append(out, File{Name: folder + "/hosts.toml", Data: in.hostsTOML(host), Secret: !in.Login.IsZero()})
	}
	return out
}

// hostsTOML returns the file that maps one upstream host to the mirror. With Only, the mirror also replaces the
// server that containerd asks last.
func (in Input) hostsTOML(host string) []byte {
	var b strings.Builder
	url := in.scheme() + in.Mirror.Host() + "/v2/" + in.below(host)
	fmt.Fprintf(&b, "# Images of %s are looked for in %s first.\n", host, in.Mirror.Repository())
	b.WriteString("# containerd reads this at every pull: nothing has to be restarted, once config_path\n# names the folder above this one's.\n")
	if in.Only {
		fmt.Fprintf(&b, "# %s itself is never asked.\nserver = %s\n", host, quote(url))
		in.hostTable(&b, "", "header")
	} else {
		server := host
		if host == "docker.io" {
			server = "registry-1.docker.io"
		}
		fmt.Fprintf(&b, "server = %s\n", quote("https://"+server))
	}
	table := "host." + quote(url)
	fmt.Fprintf(&b, "\n[%s]\n", table)
	in.hostTable(&b, "  ", table+".header")
	return []byte(b.String())
}

// hostTable writes how to ask the mirror.
func (in Input) hostTable(b *strings.Builder, indent, header string) {
	fmt.Fprintf(b, "%[1]scapabilities = [\"pull\", \"resolve\"]\n%[1]soverride_path = true\n", indent)
	if in.CA != "" && !in.PlainHTTP {
		fmt.Fprintf(b, "%sca = %s\n", indent, quote(in.CA))
	}
	if !in.Login.IsZero() {
		fmt.Fprintf(b, "%[1]s[%[2]s]\n%[1]s  Authorization = %[3]s\n", indent, header, quote(in.Login.basic()))
	}
}

func (in Input) crio(repositories []mirrorset.Entry) []File {
	var b strings.Builder
	fmt.Fprintf(&b, "# Images of the vSphere drivers are looked for in %s.\n", in.Mirror.Repository())
	b.WriteString("# CRI-O takes this up with `systemctl reload crio`; no pod is touched. A login is\n# kept in CRI-O's global_auth_file, not here.\n")
	if in.CA != "" {
		fmt.Fprintf(&b, "# The CA certificate %s belongs to /etc/containers/certs.d/%s/ca.crt.\n", in.CA, in.Mirror.Host())
	}
	for _, r := range repositories {
		fmt.Fprintf(&b, "\n[[registry]]\nprefix = %s\nlocation = %s\n", quote(r.Source), quote(r.Source))
		if in.Only {
			b.WriteString("blocked = true\n")
		}
		fmt.Fprintf(&b, "\n[[registry.mirror]]\nlocation = %s\n", quote(r.Mirrors[0]))
		if in.PlainHTTP {
			b.WriteString("insecure = true\n")
		}
	}
	return []File{{Name: "50-vdo.conf", Data: []byte(b.String())}}
}

func (in Input) k3s(repositories []mirrorset.Entry) []File {
	var b strings.Builder
	fmt.Fprintf(&b, "# /etc/rancher/k3s/registries.yaml, or /etc/rancher/rke2/registries.yaml: images of\n# the hosts below are looked for in %s first.\n", in.Mirror.Repository())
	b.WriteString("# It is read when the service starts: restart k3s on one node after the other; pods\n# go on running.\n")
	if in.Only {
		b.WriteString("# Start k3s with --disable-default-registry-endpoint, so that nothing else is asked.\n# Releases before January 2024 (1.29.1, 1.28.6, 1.27.10, 1.26.13) do not know it.\n")
	}
	b.WriteString("mirrors:\n")
	for _, host := range hosts(repositories) {
		fmt.Fprintf(&b, "  %s:\n    endpoint:\n      - %s\n    rewrite:\n      %s: %s\n", quote(host), quote(in.scheme()+in.Mirror.Host()),
			quote("^("+paths(host, repositories)+")$"), quote(in.below(host)+"/$1"))
	}
	if !in.Login.IsZero() || in.CA != "" {
		fmt.Fprintf(&b, "configs:\n  %s:\n", quote(in.Mirror.Host()))
	}
	if !in.Login.IsZero() {
		fmt.Fprintf(&b, "    auth:\n      username: %s\n      password: %s\n", quote(in.Login.Username), quote(in.Login.Password))
	}
	if in.CA != "" {
		fmt.Fprintf(&b, "    tls:\n      ca_file: %s\n", quote(in.CA))
	}
	return []File{{Name: "registries.yaml", Data: []byte(b.String()), Secret: !in.Login.IsZero()}}
}

// paths returns a regular expression for a host's repositories. Other paths stay, and end up at upstream.
func paths(host string, repositories []mirrorset.Entry) string {
	var out []string
	for _, r := range repositories {
		if path, ok := strings.CutPrefix(r.Source, host+"/"); ok {
			out = append(out, regexp.QuoteMeta(path))
		}
	}
	return strings.Join(out, "|")
}

func (in Input) openshift(repositories mirrorset.Entries) ([]File, error) {
	head := `# Images that are named by digest are looked for in the mirror first. The Machine
# Config Operator writes it onto every node and reloads CRI-O; nodes are not rebooted. To take an
# entry, or all of it, away again drains the nodes, one after the other.
# The mirror's login belongs into the cluster's pull secret, its CA into
# additionalTrustedCA of image.config.openshift.io/cluster.
`
	if in.PlainHTTP {
		head += fmt.Sprintf("# %s has no TLS: name it in registrySources.insecureRegistries there.\n", in.Mirror.Host())
	}
	policy := mirrorset.AllowContactingSource
	if in.Only {
		policy = mirrorset.NeverContactSource
	}
	set, err := yaml.Marshal(repositories.Object(mirrorset.Digests, "vdo-drivers", policy))
	return []File{{Name: "mirror-set.yaml", Data: append([]byte(head), set...)}}, err
}
