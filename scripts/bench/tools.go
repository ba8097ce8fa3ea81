package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// tool is a program and how it does each job. A nil job is one that it cannot do.
type tool struct {
	name, path, version string
	pull                func(s *set, host, to string) []string
	push                func(s *set, host, from string) []string
	verify              func(s *set, from string) []string
	ext                 string // of what it pulls into
}

// findTools builds or finds them.
func findTools(ctx context.Context, dir string) ([]tool, error) {
	vdo := ourselves()
	vdo.path = filepath.Join(dir, vdo.name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", vdo.path, "./bundler/cmd/vdo-bundle") //nolint:gosec // our own
	build.Dir, build.Env = toolchain.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build vdo-bundle: %w\n%s", err, out)
	}
	tools := []tool{vdo}
	for _, t := range []tool{crane(), regctl()} {
		var err error
		if t.path, err = toolchain.Ensure(ctx, os.Stderr, toolchain.Tool{Name: t.name}); err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	for _, t := range []tool{skopeo(), oras(), imgpkg()} {
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

func ourselves() tool {
	return tool{
		name: "vdo-bundle", ext: ".tar",
		pull: func(s *set, host, to string) []string {
			return []string{"pull", "--lock", filepath.Join(s.dir, "lock.yaml"), "--matrix", filepath.Join(s.dir, "matrix.yaml"),
				"--manifest-dir", filepath.Join(s.dir, "manifests"), "--plain-http", host, "--source-map", "registry.test=" + host + "/x", "-q", "-o", to}
		},
		push: func(_ *set, host, from string) []string {
			return []string{"push", from, host + "/copy/all:1", "--plain-http", host, "-q"}
		},
		verify: func(s *set, from string) []string {
			return []string{"verify", from, "--key", filepath.Join(s.dir, "bench.pub"), "-q"}
		},
	}
}

func crane() tool {
	return tool{
		name: "crane",
		pull: func(_ *set, host, to string) []string {
			return []string{"pull", "--insecure", "--format", "oci", host + "/all:1", to}
		},
		push: func(_ *set, host, from string) []string {
			return []string{"push", "--insecure", from, host + "/copy/all:1"}
		},
	}
}

func regctl() tool {
	plain := func(host string) []string { return []string{"--host", "reg=" + host + ",tls=disabled"} }
	return tool{
		name: "regctl",
		pull: func(_ *set, host, to string) []string {
			return append(plain(host), "image", "copy", host+"/all:1", "ocidir://"+to+":1")
		},
		push: func(_ *set, host, from string) []string {
			return append(plain(host), "image", "copy", "ocidir://"+from+":1", host+"/copy/all:1")
		},
	}
}

func skopeo() tool {
	return tool{
		name: "skopeo",
		pull: func(_ *set, host, to string) []string {
			return []string{"--insecure-policy", "copy", "-q", "--all", "--src-tls-verify=false", "docker://" + host + "/all:1", "oci:" + to + ":1"}
		},
		push: func(_ *set, host, from string) []string {
			return []string{"--insecure-policy", "copy", "-q", "--all", "--dest-tls-verify=false", "oci:" + from + ":1", "docker://" + host + "/copy/all:1"}
		},
	}
}

func oras() tool {
	return tool{
		name: "oras",
		pull: func(_ *set, host, to string) []string {
			return []string{"copy", "--no-tty", "--from-plain-http", host + "/all:1", "--to-oci-layout", to + ":1"}
		},
		push: func(_ *set, host, from string) []string {
			return []string{"copy", "--no-tty", "--from-oci-layout", from + ":1", "--to-plain-http", host + "/copy/all:1"}
		},
	}
}

func imgpkg() tool {
	return tool{
		name: "imgpkg", ext: ".imgpkg.tar",
		pull: func(_ *set, host, to string) []string {
			return []string{"copy", "--registry-insecure", "-i", host + "/all:1", "--to-tar", to}
		},
		push: func(_ *set, host, from string) []string {
			return []string{"copy", "--registry-insecure", "--tar", from, "--to-repo", host + "/copy/all"}
		},
	}
}
