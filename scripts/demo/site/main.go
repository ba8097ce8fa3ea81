// Command site runs the demo's vCenter and cluster until its standard input ends, and simulates the running drivers.
// It writes DIR/site.yaml, the operator's resources for the mirror and the vCenter, and prints addresses and paths as
// one line of JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

func main() {
	dir := flag.String("dir", "", "folder for its files")
	namespace := flag.String("namespace", "", "of the operator")
	reference := flag.String("reference", "", "of the bundle in the mirror")
	flag.Parse()
	if err := run(*dir, site.ResourceOptions{Namespace: *namespace, Reference: *reference}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, o site.ResourceOptions) error {
	s, err := site.New(context.Background(), site.Options{Dir: dir, NoMirror: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer s.Close()
	_, resources, _ := strings.Cut(s.Resources(o), "---\n") // without the account, which vdoctl creates
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(resources), 0o600); err != nil {
		return err
	}
	err = world.Serve(map[string]any{
		"vcenter": s.VCenter.Address(), "administrator": vcenter.Administrator.Username, "password": vcenter.Administrator.Password,
		"kubernetes": s.Cluster.Version(), "kubeconfig": s.Cluster.Kubeconfig(),
	})
	if last := s.Drivers.Err(); last != nil {
		err = errors.Join(err, fmt.Errorf("the drivers that stand in: %w", last))
	}
	return err
}
