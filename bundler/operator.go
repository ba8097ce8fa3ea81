package bundler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Operator is this project's own operator as a part of a bundle: an image whose tag
// is a version. Its install manifests are those of package deploy.
type Operator struct {
	Image   image.Reference
	Version matrix.Version
}

// NewOperator reads the reference of the operator's image.
func NewOperator(reference string) (*Operator, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	v, err := matrix.ParseVersion(ref.Tag())
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read image", Subject: reference, Err: fmt.Errorf("its tag %q is no version", ref.Tag()),
			Hint: "write it with the operator's version as tag: registry.example/vdo-operator:v1.2.3",
		}
	}
	return &Operator{Image: ref, Version: v}, nil
}

// release is what a matrix would list of it.
func (o *Operator) release() matrix.Release {
	r := matrix.Release{
		ReleaseID: matrix.ReleaseID{Driver: bundle.Operator, Version: o.Version},
		Images:    []matrix.ImageOverride{{From: deploy.Image, To: o.Image.String(), Basis: "it was asked for by that name"}},
	}
	for _, m := range deploy.Manifests() {
		r.Manifests = append(r.Manifests, matrix.Manifest{Name: m.Name, Size: int64(len(m.Data)), SHA256: image.DigestOf(m.Data).Hex()})
	}
	return r
}

// Install is how the operator of a bundle is installed.
type Install struct {
	Root      image.Digest
	Version   matrix.Version
	Manifests []byte // YAML documents, in the order in which they are applied
}

// ReadInstall returns the install manifests that a bundle holds, with the operator's
// image as it is addressed in a repository that the bundle was pushed to,
// HOST/PATH@DIGEST. Antrea's rights are left out unless they are asked for.
func ReadInstall(ctx context.Context, b *Bundle, repository string, antrea bool) (*Install, error) {
	o, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range o.contents.Lock.Releases {
		if r.Driver != bundle.Operator {
			continue
		}
		manifests, err := installManifests(o.contents, r, repository, antrea)
		return &Install{Root: o.root, Version: r.Version, Manifests: manifests}, err
	}
	return nil, &fault.Error{
		Reason: fault.NotFound, Op: "look for the operator", Subject: o.root.String(), Err: errors.New("the bundle does not hold it"),
		Hint: "make the bundle with `vdo-bundle pull --operator IMAGE`",
	}
}

func installManifests(c *bundle.Contents, r bundle.Release, repository string, antrea bool) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range r.Manifests {
		if f.Name == deploy.AntreaRights && !antrea {
			continue
		}
		data, err := pinned(c, r, c.Manifests[r.Path(f)], repository)
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

var imageLine = regexp.MustCompile(`(?m)^(\s*(?:- )?image: )(\S+)$`)

// pinned writes every image of a manifest as the mirror has it.
func pinned(c *bundle.Contents, r bundle.Release, manifest []byte, repository string) ([]byte, error) {
	var problems []error
	out := imageLine.ReplaceAllFunc(manifest, func(line []byte) []byte {
		parts := imageLine.FindSubmatch(line)
		i, ok := c.Lock.Image(r.Images[string(parts[2])])
		if !ok {
			problems = append(problems, &fault.Error{
				Reason: fault.Corrupt, Op: "read install manifests", Subject: string(parts[2]), Err: errors.New("the lock does not hold this image"),
				Hint: "make the bundle again with `vdo-bundle pull`",
			})
			return line
		}
		return []byte(string(parts[1]) + repository + "@" + i.Digest.String())
	})
	return out, fault.Join(problems...)
}
