package remote

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a path is shown what this package makes; not where a server leads, on its own host
// too: that may be a secret, or drive the terminal.
func TestOnlyOurOwnPathsAreShown(t *testing.T) {
	for path, want := range map[string]string{
		"/v2/":                             "/v2/",
		"/v2/_catalog":                     "/v2/_catalog",
		"/v2/a/b/manifests/1.0":            "/v2/a/b/manifests/1.0",
		"/v2/a/b/blobs/sha256:aa":          "/v2/a/b/blobs/sha256:aa",
		"/v2/a/b/tags/list":                "/v2/a/b/tags/list",
		"/v2/a/b/referrers/sha256:aa":      "/v2/a/b/referrers/sha256:aa",
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
