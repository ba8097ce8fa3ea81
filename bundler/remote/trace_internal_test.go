package remote

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a path is shown what this package makes; not where a server leads, on its own host
// too: that may be a secret, or drive the terminal.
func TestOnlyOurOwnPathsAreShown(t *testing.T) {
	digest := "sha256:" + strings.Repeat("3f", 32)
	for path, want := range map[string]string{
		"/v2/":                             "/v2/",
		"/v2/_catalog":                     "/v2/_catalog",
		"/v2/a/b/manifests/1.0":            "/v2/a/b/manifests/1.0",
		"/v2/a/b/blobs/" + digest:          "/v2/a/b/blobs/" + digest,
		"/v2/a/b/manifests/" + digest:      "/v2/a/b/manifests/" + digest,
		"/v2/a/b/blobs/eyJhbGciOi.J9.a-b":  "",
		"/v2/a/b/blobs/" + digest + ".s":   "/v2/a/b/blobs/" + digest,
		"/v2/a/b/tags/list":                "/v2/a/b/tags/list",
		"/v2/a/b/referrers/" + digest:      "/v2/a/b/referrers/" + digest,
		"/v2/a/b/blobs/uploads/":           "/v2/a/b/blobs/uploads/",
		"/v2/a/b/blobs/uploads/3f-secret":  "/v2/a/b/blobs/uploads/",
		"/v2/%1b%5b2J%0adebug:":            "/v2/",
		"/_storage_proxy/secret/a/b":       "",
		"/token":                           "",
		"/v2/a/b/blobs/uploads/x/secret/y": "",
	} {
		got := ""
		if m := ours.FindStringSubmatch(path); m != nil {
			got = m[1]
		}
		require.Equal(t, want, got, path)
	}
}
