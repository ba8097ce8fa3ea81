package vcenter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// maxDepth bounds the walk from a datacenter to the root.
const maxDepth = 64

// datacenters returns the inventory paths of all datacenters that the session sees:
// one view over the tree, and one batch of names and parents.
func datacenters(ctx context.Context, c *vim25.Client) (paths []string, err error) {
	v, err := view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"Datacenter", "Folder"}, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = v.Destroy(ctx) // it ends with the session in any case
	}()
	var entities []mo.ManagedEntity
	if err := v.Retrieve(ctx, []string{"Datacenter", "Folder"}, []string{"name", "parent"}, &entities); err != nil {
		return nil, err
	}
	return inventoryPaths(c.ServiceContent.RootFolder, entities), nil
}

// inventoryPaths writes /FOLDER/NAME for each datacenter, sorted. A datacenter one
// of whose folders the account cannot see has no path, as for the drivers.
func inventoryPaths(root types.ManagedObjectReference, entities []mo.ManagedEntity) []string {
	byRef := make(map[types.ManagedObjectReference]mo.ManagedEntity, len(entities))
	for _, e := range entities {
		byRef[e.Self] = e
	}
	paths := []string{}
	for _, e := range entities {
		if e.Self.Type != "Datacenter" {
			continue
		}
		if p, ok := pathOf(root, e, byRef); ok {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

func pathOf(root types.ManagedObjectReference, e mo.ManagedEntity, byRef map[types.ManagedObjectReference]mo.ManagedEntity) (string, bool) {
	path := ""
	for range maxDepth {
		path = "/" + e.Name + path
		if e.Parent == nil {
			return "", false
		}
		if *e.Parent == root {
			return path, true
		}
		next, ok := byRef[*e.Parent]
		if !ok {
			return "", false
		}
		e = next
	}
	return "", false
}

// missing returns those wanted that are not among the paths. A path may be written
// with or without its leading slash.
func missing(wanted, paths []string) []string {
	var out []string
	for _, w := range wanted {
		if !slices.Contains(paths, "/"+strings.Trim(w, "/")) && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// missingFault names all that is missing at once, and where a name is right but
// its folder was left out, the path to write.
func missingFault(address string, missing, paths []string) error {
	hint := "correct spec.datacenters, or give the account the role ReadOnly on the datacenter and its folders"
	if better := suggest(missing, paths); len(better) > 0 {
		hint = "a datacenter in a folder is named with it: write " + strings.Join(better, ", ") + " in spec.datacenters"
	}
	found := "the account sees no datacenter"
	if len(paths) > 0 {
		found = "the account sees " + strings.Join(paths, ", ")
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "find datacenters in", Subject: address, Hint: hint,
		Err: fmt.Errorf("%s not there or not readable; %s", strings.Join(quoted(missing), ", "), found)}
}

// suggest returns the paths whose last element is a missing name.
func suggest(missing, paths []string) []string {
	var out []string
	for _, m := range missing {
		for _, p := range paths {
			if base := p[strings.LastIndex(p, "/")+1:]; base == m[strings.LastIndex(m, "/")+1:] {
				out = append(out, strings.TrimPrefix(p, "/"))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}
