package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// tool is a program with its command lines, by a key. Words in capitals are replaced, see [tool.args]. A line that is
// not there is a job that it cannot do.
type tool struct {
	name, path string
	lines      map[string]string
	plain      string // further arguments of pull and push for a registry without TLS
	ext        string // of the file that it pulls into
}

// Names of our own tools: of this tree, and of -against.
const (
	ourName    = "vdo-bundle"
	beforeName = "before"
)

func ourselves(name, path string) tool {
	const (
		from = " --matrix DIR/matrix.yaml --manifest-dir DIR/manifests --source-map registry.test=HOST/x -q -o "
		pull = "pull --lock LOCK" + from + "AT"
		push = "push AT HOST/copy/all:TAG -q"
		key  = " --key DIR/bench.pub"
	)
	return tool{
		name: name, path: path, ext: ".tar", plain: "--plain-http HOST",
		lines: map[string]string{
			"lock": "lock --release cpi@RELEASE --plain-http HOST" + from + "LOCK",
			"pull": pull, "push": push,
			"delta": pull + " --base BASE", "delta push": push, // what a set lacks in BASE, as a file of its own
			"sign":   "sign AT --key DIR/bench.key --identity bench.test/all",
			"verify": "verify AT -q" + key, "verified push": push + key,
			// The flags that raise memory most.
			"most pull": pull + " --concurrency 64", "most push": push + " --concurrency 64 --chunk-size 16MiB",
		},
	}
}

// peers are the other projects' tools, built from their modules in scripts/tools.
var peers = []tool{
	{name: "crane", plain: "--insecure", lines: map[string]string{
		"pull": "pull --format oci HOST/all:TAG AT", "push": "push AT HOST/copy/all:TAG",
	}},
	{name: "regctl", plain: "--host reg=HOST,tls=disabled", lines: map[string]string{
		"pull": "image copy HOST/all:TAG ocidir://AT:TAG", "push": "image copy ocidir://AT:TAG HOST/copy/all:TAG",
	}},
}

// args returns a command line for a set at a registry's host; at is the tool's location for it.
func (t tool) args(line string, s *set, host, at, base string) []string {
	if !s.tls && (strings.HasPrefix(line, t.lines["pull"]) || strings.HasPrefix(line, t.lines["push"])) {
		line += " " + t.plain
	}
	words := strings.NewReplacer("HOST", host, "AT", at, "BASE", base, "TAG", s.tag, "RELEASE", s.release(),
		"DIR", s.dir, "LOCK", filepath.Join(s.dir, "lock-"+t.name+".yaml"))
	args := strings.Fields(line)
	for i := range args {
		args[i] = words.Replace(args[i])
	}
	return args
}

func findTools(ctx context.Context, o options) ([]tool, error) {
	for _, name := range o.tools {
		isOurs := name == ourName || name == beforeName && o.against != ""
		if !isOurs && !slices.ContainsFunc(peers, func(t tool) bool { return t.name == name }) {
			return nil, fmt.Errorf("-tools: there is no tool %q", name)
		}
	}
	err := toolchain.Builder{Progress: os.Stderr}.Project(ctx, o.dir, "./bundler/cmd/vdo-bundle")
	if err != nil {
		return nil, err
	}
	tools := []tool{ourselves(ourName, filepath.Join(o.dir, "vdo-bundle"))}
	tools[0].lines["keygen"] = "keygen -o DIR/bench"
	if o.against != "" {
		tools = append(tools, ourselves(beforeName, o.against))
	}
	for _, t := range peers {
		if o.tools != nil && !slices.Contains(o.tools, t.name) {
			continue
		}
		if t.path, err = toolchain.Ensure(ctx, os.Stderr, toolchain.Tool{Name: t.name}); err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return tools, nil
}
