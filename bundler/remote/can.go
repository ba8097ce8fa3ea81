package remote

import "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"

// Can tells what a repository can do besides being read and written.
func (r *Repository) Can() medium.Capabilities {
	return medium.Capabilities{
		Repository: r.ref, Attach: r.Attach, Holds: r.Holds,
		Preflight: r.Preflight, Mount: r.Mount, Lacks: r.Lacks, Omitted: r.Omitted, Remember: r.Remember,
	}
}
