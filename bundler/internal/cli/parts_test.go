package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

func TestMovedLineNamesASourceOfItsOwn(t *testing.T) {
	for source, want := range map[string]string{
		"registry.site/a:2":           "moved: registry.site/a:2: the manifest lags",
		"registry.site/a:2@sha256:12": "moved: registry.site/a:2: the manifest lags",
		"registry.site/a:20":          "moved: registry.site/a:2 is taken from registry.site/a:20: the manifest lags",
		"other.site/a:2@sha256:12":    "moved: registry.site/a:2 is taken from other.site/a:2@sha256:12: the manifest lags",
	} {
		ref, err := image.ParseReference("registry.site/a:2")
		require.NoError(t, err)
		require.Equal(t, want, movedLine(ref, source, "the manifest lags"))
	}
}

func TestParsePlace(t *testing.T) {
	for s, want := range map[string]string{
		"drivers.tar":                 "file drivers.tar",
		"a/b/drivers.tar":             "file a/b/drivers.tar",
		"./drivers":                   "file ./drivers",
		"../x":                        "file ../x",
		"/tmp/x":                      "file /tmp/x",
		"host.domain/drivers.tar":     "file host.domain/drivers.tar",
		"oci:dir":                     "folder oci:dir",
		"oci:/tmp/dir":                "folder oci:/tmp/dir",
		"registry.site/vdo/drivers":   "registry registry.site/vdo/drivers:latest",
		"registry.site:5000/drivers":  "registry registry.site:5000/drivers:latest",
		"localhost/drivers:1":         "registry localhost/drivers:1",
		"registry.site/d.tar:1":       "registry registry.site/d.tar:1",
		"[::1]:5000/drivers:1":        "registry [::1]:5000/drivers:1",
		"foo/bar:1":                   "error",
		"":                            "error",
		"registry.site/x:":            "error",
		"registry.site/x@sha256:1234": "error",
	} {
		t.Run(s, func(t *testing.T) {
			p, err := parseLocation(s)
			if want == "error" {
				require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
				require.NotEmpty(t, fault.HintOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, []string{"file ", "folder ", "registry "}[p.store]+p.String())
		})
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add("registry.site:5000/vdo/drivers:1")
	f.Add("oci:x")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseLocation(s)
		if err != nil {
			return
		}
		again, err := parseLocation(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func TestEventsAreLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app{err: &out, progress: progressJSON}
	r := (&common{app: a, outputFlags: outputFlags{format: "json", shows: true}}).reporter()
	r.Phase("pull", 2, 1000)
	r.Moved(5)
	r.Moved(495)
	r.Done("layer of <x>", errors.New("broken"))
	a.say("wrote %s", "f")
	a.report(&fault.Error{Reason: fault.Storage, Op: "write", Err: errors.New("full")}, false)
	require.Equal(t, `{"phase":"pull","items":2,"done":0,"bytes":1000,"moved":0}
{"phase":"pull","items":2,"done":0,"bytes":1000,"moved":500}
{"failed":"layer of <x>","phase":"pull"}
{"message":"wrote f"}
{"error":{"reason":"Storage","exitCode":7,"problems":[{"reason":"Storage","message":"write: full"}]}}
`, out.String())

	out.Reset()
	a.progress = progressAuto
	c := &common{app: a, outputFlags: outputFlags{format: "json", quiet: true}}
	o, err := (&registryFlags{remote: remote.Options{Concurrency: 1, Stall: time.Minute}}).options(c)
	require.NoError(t, err)
	o.Paused("registry.site", 6*time.Second)
	require.Equal(t, `{"message":"registry.site limits requests: waiting 6s"}`+"\n", out.String())

	out.Reset()
	c.registryFlags = registryFlags{retries: 1, remote: remote.Options{Stall: time.Minute}}
	authority, _, err := (&signingFlags{by: c, timestampServer: "https://tsa.site"}).timestamps()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	tsa, busy := authority.Client, &remote.AnswerError{Status: http.StatusTooManyRequests, After: 6 * time.Second}
	require.ErrorIs(t, tsa.Wait(ctx, tsa.Host("tsa.site"), busy, 1), context.DeadlineExceeded)
	require.Equal(t, `{"message":"tsa.site limits requests: waiting 6s"}`+"\n", out.String())
}
