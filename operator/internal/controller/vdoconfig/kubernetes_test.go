package vdoconfig

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

func TestDriversAreChosenForTheLowestAPIServerAndNeverGoBack(t *testing.T) {
	up, down := func(v string) assess.APIServer { return assess.APIServer{Address: "10.0.0.1:6443", Version: v} },
		assess.APIServer{Address: "10.0.0.3:6443", Err: errors.New("connection refused")}
	now := time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		servers    []assess.APIServer
		remembered string
		want       string
		note       string
	}{
		"one":                             {[]assess.APIServer{up("v1.33.4")}, "", "v1.33.4", ""},
		"one that was upgraded":           {[]assess.APIServer{up("v1.34.2")}, "v1.33.4", "v1.34.2", ""},
		"the newer one answers":           {[]assess.APIServer{up("v1.34.2"), up("v1.33.4"), up("v1.34.2")}, "v1.33.4", "v1.33.4", "are of Kubernetes v1.33.4 to v1.34.2"},
		"versions are no strings":         {[]assess.APIServer{up("v1.9.2"), up("v1.10.4")}, "", "v1.9.2", ""},
		"never back":                      {[]assess.APIServer{up("v1.34.2"), up("v1.33.4")}, "v1.34.2", "v1.34.2", "an API server is of Kubernetes v1.33.4"},
		"one may be older":                {[]assess.APIServer{up("v1.34.2"), up("v1.34.2"), down}, "v1.33.4", "v1.33.4", "10.0.0.3:6443: connection refused"},
		"addresses cannot be read":        {[]assess.APIServer{up("v1.34.2"), {Err: errors.New("forbidden")}}, "v1.33.4", "v1.33.4", "forbidden; drivers are chosen for Kubernetes v1.33.4"},
		"one answers with something else": {[]assess.APIServer{up("v1.34.2"), up("nginx")}, "", "v1.34.2", `it answers with "nginx", which is no Kubernetes version`},
		"the only one has no version":     {[]assess.APIServer{up("")}, "v1.33.4", "v1.33.4", "no Kubernetes version"},
		"a patch never goes back":         {[]assess.APIServer{up("v1.33.5"), up("v1.33.4")}, "v1.33.5", "v1.33.5", ""},
		"one may be of another patch":     {[]assess.APIServer{up("v1.33.5"), down}, "v1.33.4", "v1.33.5", "10.0.0.3:6443: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := kubernetesFor(c.servers, c.remembered, time.Time{}, now)
			require.NoError(t, err)
			require.Equal(t, c.want, k.reported)
			require.Equal(t, c.want, "v"+k.version.String())
			notes := few(k.notes)
			if c.note != "" {
				require.Contains(t, notes, c.note)
				require.Contains(t, notes, "drivers are chosen for Kubernetes "+c.want)
			} else if name != "versions are no strings" {
				require.Empty(t, notes)
			}
		})
	}
	_, err := kubernetesFor([]assess.APIServer{down}, "v1.33.4", now, now)
	require.ErrorContains(t, err, "none of 1 answers")
	_, err = kubernetesFor([]assess.APIServer{up("")}, "", now, now)
	require.ErrorContains(t, err, "no Kubernetes version", "nothing is known at all")

	missing := &fault.Error{Reason: fault.Forbidden, Op: "read", Subject: "the addresses of the API servers"}
	k, err := kubernetesFor([]assess.APIServer{up("v1.34.2"), {Err: missing}}, "v1.33.4", now, now)
	require.NoError(t, err)
	require.Equal(t, "v1.33.4", k.reported)
	require.ErrorIs(t, k.unread, missing, "it does not pass by itself")
	k, err = kubernetesFor([]assess.APIServer{up("v1.34.2"), down}, "v1.33.4", now, now)
	require.NoError(t, err)
	require.NoError(t, k.unread)
}

// Behind a load balancer no API server can be asked by itself: a newer minor counts once nothing older
// has answered for an hour.
func TestANewerAnswerCountsInTheEndThoughNotAllCanBeAsked(t *testing.T) {
	now := time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
	for ago, c := range map[time.Duration]struct{ answer, want, note string }{
		59 * time.Minute: {"v1.34.2", "v1.33.4", "Kubernetes v1.34.2 counts from 2026-01-03T01:01:00Z on"},
		time.Hour:        {"v1.34.2", "v1.34.2", "drivers are chosen for Kubernetes v1.34.2"},
		2 * time.Hour:    {"v1.33.4", "v1.33.4", "the version of some API servers is unknown"},
		-time.Hour:       {"v1.34.2", "v1.33.4", "counts from 2026-01-03T02:00:00Z on"}, // by a clock that was ahead
	} {
		servers := []assess.APIServer{{Version: c.answer}, {Address: "10.0.0.1:6443", Err: errors.New("certificate signed by unknown authority")}}
		k, err := kubernetesFor(servers, "v1.33.4", now.Add(-ago), now)
		require.NoError(t, err)
		require.Equal(t, c.want, k.reported, ago)
		require.Contains(t, few(k.notes), c.note, ago)
		require.Equal(t, c.answer == c.want, k.newerSince.IsZero(), "it is remembered while it is waited for: %s", ago)
	}
}
