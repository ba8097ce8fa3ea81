package model

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// apiFault is what an API server does to the operator's requests for a while.
type apiFault struct {
	name   string
	begin  func(w *world)
	says   string // what has to reach the conditions; empty: they cannot be written
	rounds int    // of passes under it; 0: three
}

// webhook is another's admission webhook, which the API server asks about what the
// operator writes. In mode "" it lets everything through.
type webhook struct {
	mode  atomic.Value
	asked atomic.Int64
}

const denial = "not before Monday"

func (h *webhook) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	var review admissionv1.AdmissionReview
	data, err := io.ReadAll(req.Body)
	if err != nil || json.Unmarshal(data, &review) != nil || review.Request == nil {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	allowed := true
	switch h.mode.Load() {
	case "denies":
		h.asked.Add(1)
		allowed = false
	case "fails":
		h.asked.Add(1)
		out.WriteHeader(http.StatusInternalServerError)
		return
	case "is slow":
		h.asked.Add(1)
		<-req.Context().Done()
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed, Result: &metav1.Status{Message: denial}}
	review.Request = nil
	_ = json.NewEncoder(out).Encode(review) //nolint:errchkjson // the API server sent it
}

// guard puts such a webhook before the workloads, the accounts and the cluster's roles.
func (w *world) guard(t *testing.T) *webhook {
	h := &webhook{}
	h.mode.Store("")
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	all := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}
	fail, none, second, url := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(1), s.URL
	o := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy-of-the-site"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "policy.site.example", FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &second, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
		Rules: []admissionregistrationv1.RuleWithOperations{
			{Operations: all, Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"daemonsets", "deployments"}}},
			{Operations: all, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"serviceaccounts"}}},
			{Operations: all, Rule: admissionregistrationv1.Rule{APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"clusterroles"}}},
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "operator", Expression: "request.userInfo.username == 'system:serviceaccount:" + namespace + ":vdo-operator'"}},
	}}}
	w.must(w.Create(w.ctx, o))
	t.Cleanup(func() { _ = w.Delete(context.Background(), o) })
	require.Eventually(t, func() bool { // the API server hears of it by a watch
		h.mode.Store("denies")
		defer h.mode.Store("")
		w.wire.live(1)
		defer w.wire.live(0)
		w.round()
		return h.asked.Load() > 0
	}, time.Minute, 10*time.Millisecond)
	return h
}

// answers is a fault that the API server's answers have, to the requests that it is for.
func answers(name string, status int, to func(*http.Request) bool, says string) apiFault {
	return apiFault{name: name, says: says, begin: func(w *world) {
		w.wire.mu.Lock()
		defer w.wire.mu.Unlock()
		w.wire.refuse = func(req *http.Request) *http.Response {
			if to(req) {
				return answer(req, status)
			}
			return nil
		}
	}}
}

// apiServerFails has the API server refuse what the operator asks for, in all the ways that
// it has, over and over in the course of an installation, an upgrade and a removal. No
// invariant breaks, the conditions say what is wrong wherever they can be written, and the
// operator goes on by itself once it is over.
func apiServerFails(t *testing.T, s *site) {
	ofOthers := func(req *http.Request) bool { // all but the conditions, and what they are written by
		return req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/vdo.vmware.com/")
	}
	ofStatus := func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/status") }
	every := func(*http.Request) bool { return true }
	w, broken, err := enact(context.Background(), s, func(w *world) {
		h := w.guard(t)
		faults := []apiFault{
			{name: "webhook denies", says: denial},
			answers("nothing is served", http.StatusServiceUnavailable, every, ""),
		}
		if tier.Open(tier.All) {
			faults = []apiFault{
				answers("conditions are not written", http.StatusInternalServerError, ofStatus, ""), faults[0],
				{name: "webhook fails", says: "policy.site.example"},
				{name: "webhook is slow", says: "policy.site.example", rounds: 1}, // a second for each of its answers
				answers("writes are throttled", http.StatusTooManyRequests, ofOthers, wireFault),
				answers("writes fail", http.StatusInternalServerError, ofOthers, wireFault),
				answers("writes conflict", http.StatusConflict, ofOthers, wireFault),
				answers("writes end by timeout", http.StatusGatewayTimeout, ofOthers, wireFault), faults[1],
			}
		}
		met := map[string]int{}
		through := func() { // all of them, with some progress after each
			for _, f := range faults {
				met[f.name] += w.suffers(t, h, f)
				w.wire.live(life)
				w.round()
				w.wire.live(0)
			}
		}
		through()
		w.peace(true)
		if tier.Open(tier.All) {
			w.retag(bundleNewer)
			through()
			w.peace(true)
			w.drop(w.vdoConfig("m-site"))
			through()
			w.lives(life)
			w.removed()
		}
		t.Log(met)
		for _, f := range faults {
			require.Positive(t, met[f.name], f.name)
		}
	})
	require.NoError(t, err)
	if broken != nil {
		t.Fatalf("%v\nwhat happened:\n%s", broken, w.told())
	}
}

// round is a pass of each controller.
func (w *world) round() {
	w.play()
	for _, which := range []string{passBundle, passVCenter, passDrivers} {
		w.pass(which)
	}
	w.now = w.now.Add(30 * time.Second)
}

// suffers does passes under a fault, and tells how often it was met.
func (w *world) suffers(t *testing.T, h *webhook, f apiFault) int {
	w.note("begins", f.name)
	defer w.note("ends", f.name)
	if mode, is := strings.CutPrefix(f.name, "webhook "); is {
		h.mode.Store(mode)
		defer h.mode.Store("")
	} else {
		f.begin(w)
		defer func() { w.wire.refuse = nil }()
	}
	before := h.asked.Load() + int64(w.wire.refused)
	met := func() int64 { return h.asked.Load() + int64(w.wire.refused) - before }
	for range cmp.Or(f.rounds, 3) {
		w.round()
	}
	v := &v1alpha1.VDOConfig{}
	if client.IgnoreNotFound(w.Get(w.ctx, client.ObjectKeyFromObject(w.vdoConfig("m-site")), v)) == nil && v.UID != "" && met() > 0 && f.says != "" {
		require.Contains(t, describe(v.Status.Conditions), f.says, f.name)
	}
	return int(met())
}
