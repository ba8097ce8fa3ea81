package vcenter_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Answers that nobody expects are faults of that vCenter, and no session stays open after them.
func TestAnswersThatCannotBeUnderstoodAreFaults(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	next := passOn(t, v, func(string) {})
	for what, was := range map[string]string{
		"no views":          `<viewManager.*?</viewManager>`,
		"no authorizations": `<authorizationManager.*?</authorizationManager>`,
	} {
		find := regexp.MustCompile(was)
		changed := 0
		strange := serve(t, func(w http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			next(answer, r)
			body := answer.Body.String()
			changed += len(find.FindAllString(body, -1))
			maps.Copy(w.Header(), answer.Header())
			w.Header().Del("Content-Length")
			w.WriteHeader(answer.Code)
			_, _ = w.Write([]byte(find.ReplaceAllString(body, "")))
		})
		got := vcenter.Inspect(t.Context(), strange, vcenter.Ask{Nodes: nodesOf(vmsOf(t, v, "/site/prod/east")), Features: everything})
		require.Positive(t, changed, what)
		require.Error(t, got.Err, what)
		require.Equal(t, fault.Incompatible, fault.ReasonOf(got.Err), "%s: %v", what, got.Err)
		noSession(t, v)
	}
}

// The service of volumes refuses an action of a version that it does not have, as in govmomi v0.56.0,
// cns/client.go, NewClient: the version is that of vsanServiceVersions.xml.
func TestVolumesAreAskedForInTheirVersion(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	next := passOn(t, v, func(string) {})
	actions := map[string]bool{}
	seen := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/vsanHealth" {
			actions[r.Header.Get("SoapAction")] = true
		}
		next(w, r)
	})
	got := vcenter.Inspect(t.Context(), seen, vcenter.Ask{Features: everything})
	require.NoError(t, got.Failed[preflight.CNS])
	require.Equal(t, map[string]bool{"urn:vsan/8.0.3.0": true}, actions)
}
