package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// A layer has the server, direct libraries, licenses and what scanners read, of packages that have the
// recorded digests. The same packages give the same layer.
func TestLayerOfDebianPackages(t *testing.T) {
	control := tarOf(t, "./control", "Package: p\n", "./md5sums", "x")
	data := tarOf(t,
		"./usr/sbin/sshd", "program", "./usr/sbin/other", "x",
		"./usr/share/doc/p/copyright", "license", "./usr/share/doc/p/changelog", "x",
		"./lib/x86_64-linux-gnu/libc.so.6", "library", "./usr/lib/x86_64-linux-gnu/gconv/A.so", "x",
		"./etc/ssh/sshd_config", "x")
	deb := ar("debian-binary", "2.0\n", "control.tar.xz", control, "data.tar.xz", data)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debian/pool/p_1_amd64.deb" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(deb)
	}))
	defer server.Close()
	list := fmt.Sprintf("# comment\namd64\tpool/p_1_amd64.deb\t%x\narm64\tpool/gone.deb\t0\n", sha256.Sum256(deb))
	layerOf := func(arch, list string) (string, map[string]string, error) {
		layer, err := archive(server.URL+"/debian/").layer(t.Context(), arch, list)
		if err != nil {
			return "", nil, err
		}
		digest, err := layer.Digest()
		require.NoError(t, err)
		from, err := layer.Uncompressed()
		require.NoError(t, err)
		found := map[string]string{}
		for r := tar.NewReader(from); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return digest.String(), found, nil
			}
			require.NoError(t, err)
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			found[h.Name] = string(data) + h.Linkname
		}
	}
	digest, got, err := layerOf("amd64", list)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"usr/sbin/sshd": "program", "usr/share/doc/p/copyright": "license", "lib/x86_64-linux-gnu/libc.so.6": "library",
		"var/lib/dpkg/status.d/p": "Package: p\n", "etc/passwd": userFile, "etc/nsswitch.conf": lookups,
	}, got)
	again, _, err := layerOf("amd64", list)
	require.NoError(t, err)
	require.Equal(t, digest, again)

	_, _, err = layerOf("arm64", list)
	require.ErrorContains(t, err, "pool/gone.deb: 404")
	_, _, err = layerOf("riscv64", list)
	require.ErrorContains(t, err, "no packages for riscv64")
	deb = append(deb, ' ')
	_, _, err = layerOf("amd64", list)
	require.ErrorContains(t, err, "pool/p_1_amd64.deb: expected sha256:")
}

// ar returns an archive of names and contents.
func ar(members ...string) []byte {
	out := []byte("!<arch>\n")
	for i := 0; i < len(members); i += 2 {
		name, content := members[i], members[i+1]
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(content), content)
		if len(content)%2 == 1 {
			out = append(out, '\n')
		}
	}
	return out
}

// tarOf returns a compressed archive of names and contents.
func tarOf(t *testing.T, files ...string) string {
	var out bytes.Buffer
	compressed, err := xz.NewWriter(&out)
	require.NoError(t, err)
	to := tar.NewWriter(compressed)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, add(to, files[i], 0o644, []byte(files[i+1])))
	}
	require.NoError(t, errors.Join(to.Close(), compressed.Close()))
	return out.String()
}
