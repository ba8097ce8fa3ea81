package remote_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// echoing is a registry that tells in its refusal what it was sent, and the password; each
// of its tokens can be used once.
func echoing(t *testing.T, login remote.Credential, token func(n int64) string) *remote.Repository {
	t.Helper()
	var tokens atomic.Int64
	var used atomic.Bool
	c, host := serving(t, login, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			_ = json.NewEncoder(w).Encode(map[string]any{"token": token(tokens.Add(1)), "access_token": token(-tokens.Load())})
			used.Store(false)
		case !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer "), used.Swap(true):
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", "http://"+req.Host+"/token"))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
			text := fmt.Sprintf("%s may not, with %s, said at http://registry.site", login.Password, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": login.Password, "message": text}}})
		}
	})
	return c.Repository(image.MustReference(host + "/a/b"))
}

// However many tokens a host has given meanwhile, and however long they are: no message
// holds the password, nor the beginning of a token.
func TestNoMessageHoldsASecretAfterManyTokens(t *testing.T) {
	login := remote.Credential{Username: "u", Password: "hunter2"}
	repo := echoing(t, login, func(n int64) string { return fmt.Sprintf("canary-%d-%s", n, strings.Repeat("x", 300)) })
	for i := range 80 {
		_, err := repo.Tags(t.Context())
		wantFault(t, err, fault.Forbidden, "*** may not, with ***")
		require.NotContains(t, fault.Text(err), "hunter2", "after %d tokens", i)
		require.NotContains(t, fault.Text(err), "canary", "after %d tokens", i)
	}
}

// A password of a few letters is in every text, and taking it out would tell it.
func TestMessagesAreReadableWithAShortPassword(t *testing.T) {
	repo := echoing(t, remote.Credential{Username: "u", Password: "p"}, func(int64) string { return "token" })
	_, err := repo.Tags(t.Context())
	wantFault(t, err, fault.Forbidden, "said at http://registry.site", "with ***")
}
