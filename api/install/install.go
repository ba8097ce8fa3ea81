// Package install returns the install manifests of a bundle's operator, with the operator's image
// in the site's mirror. `vdo-bundle install-manifests` prints them and `vdoctl deploy` applies
// them.
//
//	m, err := install.Of(root, contents, install.Options{Repository: "registry.site/vdo/drivers"})
//
// A bundle with the services of tenant clusters also has the manifests of the operator for
// SIPClusters ([Options].SIP). It is the same image, in another namespace and with another account.
package install

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Manifests are the install manifests of a bundle's operator.
type Manifests struct {
	Root    image.Digest
	Version matrix.Version
	YAML    []byte // YAML documents, in the order of applying them
}

// Options describe the site of the installation.
type Options struct {
	Repository  string // where the bundle was pushed to, HOST/PATH; required
	Antrea      bool   // adds the permissions to install Antrea
	Classes     bool   // adds the permissions to create storage and snapshot classes
	MirrorSet   bool   // adds the permissions to redirect OpenShift's nodes to the mirror
	Policy      bool   // adds the admission policy that limits the permissions the operator grants
	HostNetwork bool   // for a cluster without a network yet
	// SIP selects the operator for SIPClusters instead. The bundle must have the services that it
	// runs. Antrea, Classes, MirrorSet, Policy and HostNetwork do not apply to it.
	SIP bool
}

// takes reports whether the options request a manifest of the bundle.
func (o Options) takes(name string) bool {
	switch {
	case o.SIP:
		return deploy.ForSIP(name)
	case name == deploy.AntreaRights:
		return o.Antrea
	case name == deploy.ClassesRights:
		return o.Classes
	case name == deploy.MirrorSetRights:
		return o.MirrorSet
	case name == deploy.RightsPolicy:
		return o.Policy
	}
	return !deploy.OnlySIP(name)
}

// Of returns the install manifests in a bundle, with the operator's image in the site's repository,
// HOST/PATH@DIGEST. It fails with NotFound if the bundle lacks the operator or, for SIPClusters,
// its manifests or services.
func Of(root image.Digest, c *bundle.Contents, to Options) (*Manifests, error) {
	for _, r := range c.Lock.Releases {
		if r.Driver != bundle.Operator {
			continue
		}
		if err := holdsSIP(root, c, r); to.SIP && err != nil {
			return nil, err
		}
		manifests, err := installManifests(c, r, to)
		return &Manifests{Root: root, Version: r.Version, YAML: manifests}, err
	}
	hint := "make the bundle with `vdo-bundle lock --operator IMAGE`"
	if to.SIP {
		hint = lockSIP
	}
	return nil, fault.Errorf(fault.NotFound, "look for the operator", root.String(), hint,
		"the bundle does not hold it")
}

// lockSIP is the hint how to make a bundle with the operator for SIPClusters.
const lockSIP = "make the bundle with `vdo-bundle lock --operator IMAGE --services sip`"

// holdsSIP returns why a bundle cannot install the operator for SIPClusters, or nil.
func holdsSIP(root image.Digest, c *bundle.Contents, operator bundle.Release) error {
	why := ""
	if !slices.ContainsFunc(operator.Manifests, func(f bundle.File) bool { return deploy.OnlySIP(f.Name) }) {
		why = "the bundle does not hold its manifests"
	}
	if !slices.ContainsFunc(c.Lock.Releases, func(r bundle.Release) bool { return bundle.IsService(r.Driver) }) {
		why = "the bundle does not hold the services that it runs"
	}
	if why == "" {
		return nil
	}
	return fault.Errorf(fault.NotFound, "look for the operator of SIPClusters", root.String(), lockSIP, "%s", why)
}

func installManifests(c *bundle.Contents, r bundle.Release, to Options) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range r.Manifests {
		if !to.takes(f.Name) {
			continue
		}
		data, err := pinImages(c, r, c.Manifests[r.Path(f)], to.Repository)
		data = versionLine.ReplaceAll(data, []byte(`${1}"`+r.Version.String()+`"`))
		if err == nil && to.HostNetwork {
			data, err = deploy.OnHostNetwork(data)
		}
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(bytes.TrimPrefix(data, []byte("---\n")))
	}
	return out.Bytes(), nil
}

var versionLine = regexp.MustCompile(`(?m)^(\s*` + regexp.QuoteMeta(deploy.AnnotationVersion) + `: )""`)

var imageLine = regexp.MustCompile(`(?m)^(\s*(?:- )?image: )(\S+)$`)

// pinImages replaces every image of a manifest by its reference in the mirror.
func pinImages(c *bundle.Contents, r bundle.Release, manifest []byte, repository string) ([]byte, error) {
	var problems []error
	out := imageLine.ReplaceAllFunc(manifest, func(line []byte) []byte {
		parts := imageLine.FindSubmatch(line)
		i, ok := c.Lock.Image(r.Images[string(parts[2])])
		if !ok {
			problems = append(problems, fault.Errorf(fault.Corrupt, "read install manifests", string(parts[2]),
				"make the bundle again with `vdo-bundle pull`", "the lock does not hold this image"))
			return line
		}
		return []byte(string(parts[1]) + repository + "@" + i.Digest.String())
	})
	return out, fault.Join(problems...)
}
