package archive

import "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"

// Can tells what an archive can do besides being read.
func (a *File) Can() medium.Capabilities {
	return medium.Capabilities{Base: a.Base(), CheckLayout: a.CheckLayout, Damage: a.Damage, Attach: a.Attach}
}

// Can tells what a folder can do besides being read.
func (d *Dir) Can() medium.Capabilities {
	return medium.Capabilities{Base: d.Base(), CheckLayout: d.CheckLayout, Attach: d.Attach}
}

// Can tells what the writer of an archive can do besides being written to.
func (w *FileWriter) Can() medium.Capabilities {
	return medium.Capabilities{Preflight: w.Preflight, Existing: w.Existing}
}

// Can tells what the writer of a folder can do besides being written to.
func (w *DirWriter) Can() medium.Capabilities {
	return medium.Capabilities{Preflight: w.Preflight, Existing: w.Existing}
}

// Can tells that a stream has an order.
func (s *StreamWriter) Can() medium.Capabilities { return medium.Capabilities{InOrder: true} }
