// Command registries runs the registries of the demo until its standard input ends. They are the upstream ones, with
// a web server of manifests, and the site's private mirror. It prints their addresses as one line of JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

func main() {
	connected := flag.String("connected", "", "folder for the connected host's files")
	site := flag.String("site", "", "folder for the site's files")
	manifests := flag.String("manifests", "", "folder of the real upstream manifests; none: stand-ins")
	program := flag.String("program", "", "static program that images are made of")
	releases := flag.String("releases", "", "releases that upstream has: cpi@1.33.1,csi@3.5.1")
	jumpHost := flag.String("jump-host", "", "REPO:TAG that upstream has the jump host at, and with it the services of tenant clusters")
	flag.Parse()
	options := world.UpstreamOptions{Dir: *connected, Manifests: *manifests, Program: *program, Releases: strings.Split(*releases, ","), JumpHost: *jumpHost}
	if err := run(options, *site); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o world.UpstreamOptions, site string) error {
	upstream, err := world.NewUpstream(context.Background(), o)
	if err != nil {
		return err
	}
	defer upstream.Close()
	mirror, err := world.StartMirror(site, "")
	if err != nil {
		return err
	}
	return errors.Join(world.Serve(map[string]any{
		"upstream": upstream.Registry.Host, "images": len(upstream.Images), "flags": upstream.Flags(), "mirror": mirror.Host,
	}), mirror.Close())
}
