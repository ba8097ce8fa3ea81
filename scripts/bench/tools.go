package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// tool is a program and how it does each job. A nil job is one that it cannot do.
type tool struct {
	name, path, version string
	pull                func(s *set, host, to string) []string
	push                func(s *set, host, from string) []string
	ext                 string // of what it pulls into
	// oneEntry is for tools that push folders of one entry only.
	oneEntry bool
	own      *ownJobs // nil: it is one of the others
}

// ownJobs are what only vdo-bundle does.
type ownJobs struct {
	lock         func(s *set) []string
	sign         func(s *set, bundle string) []string
	verify       func(s *set, from string) []string
	verifiedPush func(s *set, host, from string) []string
	// delta pulls what base lacks of a set into a file of its own. The others pull into
	// a copy of base where that is a folder, and else do not do the job.
	delta func(s *set, host, base, to string) []string
	// What raises memory most: with both, with pulls, with pushes.
	most, pullMost, pushMost []string
}

// findTools builds or finds those that are asked for.
func findTools(ctx context.Context, o options) ([]tool, error) {
	vdo := ourselves(ourName)
	vdo.path = filepath.Join(o.dir, vdo.name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", vdo.path, "./bundler/cmd/vdo-bundle") //nolint:gosec // our own
	build.Dir, build.Env = toolchain.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build vdo-bundle: %w\n%s", err, out)
	}
	tools := []tool{vdo}
	if o.against != "" {
		before := ourselves(beforeName)
		before.path = o.against
		tools = append(tools, before)
	}
	for _, t := range []tool{crane(), regctl()} {
		if !o.wants(t.name) {
			continue
		}
		var err error
		if t.path, err = toolchain.Ensure(ctx, os.Stderr, toolchain.Tool{Name: t.name}); err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	for _, t := range []tool{skopeo(), oras(), imgpkg()} {
		if !o.wants(t.name) {
			continue
		}
		path, err := exec.LookPath(t.name)
		if err != nil {
			say("%s is not on PATH: it is left out", t.name)
			continue
		}
		t.path = path
		tools = append(tools, t)
	}
	for i := range tools {
		tools[i].version = versionOf(ctx, tools[i])
	}
	return tools, nil
}

func (o options) wants(name string) bool { return o.tools == nil || slices.Contains(o.tools, name) }

// Names of our own tools: of this tree, and of -against.
const (
	ourName    = "vdo-bundle"
	beforeName = "before"
)

var versionArgs = map[string][]string{"skopeo": {"--version"}, "regctl": {"version", "--format", "{{.VCSTag}}"}}

func versionOf(ctx context.Context, t tool) string {
	if module := map[string]string{"crane": "github.com/google/go-containerregistry", "regctl": "github.com/regclient/regclient"}[t.name]; module != "" {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module) //nolint:gosec // a fixed list
		cmd.Dir = filepath.Join(toolchain.Root(), "scripts", "tools", t.name)
		if out, err := cmd.Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	args := versionArgs[t.name]
	if args == nil {
		args = []string{"version"}
	}
	out, err := exec.CommandContext(ctx, t.path, args...).Output()
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(strings.TrimPrefix(first, t.name))
}

func ourselves(name string) tool {
	pull := func(s *set, host, to string) []string {
		return []string{"pull", "--lock", s.lockOf(name), "--matrix", filepath.Join(s.dir, "matrix.yaml"),
			"--manifest-dir", filepath.Join(s.dir, "manifests"), "--plain-http", host, "--source-map", "registry.test=" + host + "/x", "-q", "-o", to}
	}
	push := func(s *set, host, from string) []string {
		return []string{"push", from, host + "/copy/all:" + s.tag, "--plain-http", host, "-q"}
	}
	key := func(s *set) []string { return []string{"--key", filepath.Join(s.dir, "bench.pub")} }
	return tool{
		name: name, ext: ".tar", pull: pull, push: push, own: &ownJobs{
			lock: func(s *set) []string {
				host := s.upstream.Host
				return []string{"lock", "--matrix", filepath.Join(s.dir, "matrix.yaml"), "--manifest-dir", filepath.Join(s.dir, "manifests"),
					"--release", "cpi@" + s.release(), "--plain-http", host, "--source-map", "registry.test=" + host + "/x", "-q", "-o", s.lockOf(name)}
			},
			sign: func(s *set, bundle string) []string {
				return []string{"sign", bundle, "--key", filepath.Join(s.dir, "bench.key"), "--identity", "bench.test/all"}
			},
			verify: func(s *set, from string) []string { return append([]string{"verify", from, "-q"}, key(s)...) },
			verifiedPush: func(s *set, host, from string) []string {
				return append(push(s, host, from), key(s)...)
			},
			delta:    func(s *set, host, base, to string) []string { return append(pull(s, host, to), "--base", base) },
			most:     []string{"--concurrency", "64"},
			pullMost: []string{"--ranges", "8"},
			pushMost: []string{"--chunk-size", "16MiB"},
		},
	}
}

// lockOf is the lock that one of our own tools has made of a set.
func (s *set) lockOf(tool string) string { return filepath.Join(s.dir, "lock-"+tool+".yaml") }

func crane() tool {
	return tool{
		name: "crane", oneEntry: true,
		pull: func(s *set, host, to string) []string {
			return []string{"pull", "--insecure", "--format", "oci", host + "/all:" + s.tag, to}
		},
		push: func(s *set, host, from string) []string {
			return []string{"push", "--insecure", from, host + "/copy/all:" + s.tag}
		},
	}
}

func regctl() tool {
	plain := func(host string) []string { return []string{"--host", "reg=" + host + ",tls=disabled"} }
	return tool{
		name: "regctl",
		pull: func(s *set, host, to string) []string {
			return append(plain(host), "image", "copy", host+"/all:"+s.tag, "ocidir://"+to+":"+s.tag)
		},
		push: func(s *set, host, from string) []string {
			return append(plain(host), "image", "copy", "ocidir://"+from+":"+s.tag, host+"/copy/all:"+s.tag)
		},
	}
}

func skopeo() tool {
	return tool{
		name: "skopeo",
		pull: func(s *set, host, to string) []string {
			return []string{"--insecure-policy", "copy", "-q", "--all", "--src-tls-verify=false", "docker://" + host + "/all:" + s.tag, "oci:" + to + ":" + s.tag}
		},
		push: func(s *set, host, from string) []string {
			return []string{"--insecure-policy", "copy", "-q", "--all", "--dest-tls-verify=false", "oci:" + from + ":" + s.tag, "docker://" + host + "/copy/all:" + s.tag}
		},
	}
}

func oras() tool {
	return tool{
		name: "oras",
		pull: func(s *set, host, to string) []string {
			return []string{"copy", "--no-tty", "--from-plain-http", host + "/all:" + s.tag, "--to-oci-layout", to + ":" + s.tag}
		},
		push: func(s *set, host, from string) []string {
			return []string{"copy", "--no-tty", "--from-oci-layout", from + ":" + s.tag, "--to-plain-http", host + "/copy/all:" + s.tag}
		},
	}
}

func imgpkg() tool {
	return tool{
		name: "imgpkg", ext: ".imgpkg.tar",
		pull: func(s *set, host, to string) []string {
			return []string{"copy", "--registry-insecure", "-i", host + "/all:" + s.tag, "--to-tar", to}
		},
		push: func(s *set, host, from string) []string {
			return []string{"copy", "--registry-insecure", "--tar", from, "--to-repo", host + "/copy/all"}
		},
	}
}
