package inspection

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func spec() *v1alpha1.VDOConfigSpec {
	return &v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfigs: []string{"a", "b"}, TopologyCategories: []string{"zone"}}}
}

func TestWhenAQuestionIsAskedAgain(t *testing.T) {
	answered := func(ago time.Duration, failed int) *state {
		return &state{answer: &preflight.Answer{Question: "q", At: begin.Add(-ago)}, failed: failed}
	}
	hourly := spec()
	hourly.Preflight = &v1alpha1.PreflightPolicy{Interval: metav1.Duration{Duration: time.Hour}}
	often := spec()
	often.Preflight = &v1alpha1.PreflightPolicy{Interval: metav1.Duration{Duration: 5 * time.Minute}}
	for name, c := range map[string]struct {
		s    *state
		q    preflight.Question
		spec *v1alpha1.VDOConfigSpec
		due  bool
	}{
		"never asked":                         {s: &state{}, due: true},
		"known from the status":               {s: &state{}, q: preflight.Question{Known: begin.Add(-20 * time.Minute)}},
		"known from the status, and old":      {s: &state{}, q: preflight.Question{Known: begin.Add(-30 * time.Minute)}, due: true},
		"kept back by the status":             {s: &state{}, q: preflight.Question{Known: begin.Add(-time.Minute), Gated: true}, due: true},
		"kept back by the status, just now":   {s: &state{}, q: preflight.Question{Known: begin.Add(-30 * time.Second), Gated: true}},
		"another question":                    {s: answered(0, 0), q: preflight.Question{ID: "other"}, due: true},
		"the interval is over":                {s: answered(30*time.Minute, 0), due: true},
		"a longer interval":                   {s: answered(30*time.Minute, 0), spec: hourly},
		"a pass was asked for":                {s: answered(time.Minute, 0), q: preflight.Question{Pass: "now"}, due: true},
		"that pass is in the status":          {s: answered(time.Minute, 0), q: preflight.Question{Pass: "now", Handled: "now"}},
		"that pass was made":                  {s: &state{answer: answered(time.Minute, 0).answer, pass: "now"}, q: preflight.Question{Pass: "now"}},
		"kept back, after a minute":           {s: answered(time.Minute, 1), due: true},
		"kept back again, after a minute":     {s: answered(time.Minute, 2)},
		"kept back often, after nine minutes": {s: answered(9*time.Minute, 100), due: true},
		"kept back often, after eight":        {s: answered(8*time.Minute, 100)},
		"never later than the interval":       {s: answered(5*time.Minute, 100), spec: often, due: true},
		"a clock that went back":              {s: answered(-time.Hour, 0), due: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.q.Spec = c.spec; c.spec == nil {
				c.q.Spec = spec()
			}
			if c.q.ID == "" {
				c.q.ID = "q"
			}
			require.Equal(t, c.due, c.s.due(c.q, begin))
		})
	}
}

// site is two vCenters with one account, of which Inspect answers as the test says.
type site struct {
	*Inspector
	api    client.Client
	tried  chan string
	answer func(host string, login func(error) error) preflight.VCenter
}

func start(t *testing.T, answer func(string, func(error) error) preflight.VCenter) *site {
	s := &site{tried: make(chan string, 100), answer: answer}
	objects := []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "creds", UID: "s", Annotations: map[string]string{credentials.EndsAnnotation: "vdo@site 2020-01-01"}}, Data: map[string][]byte{"username": []byte("vdo@site"), "password": []byte("canary")}}}
	for _, name := range []string{"a", "b"} {
		objects = append(objects, &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1},
			Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: name + ".site", Credentials: "creds"}})
	}
	s.api = fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithStatusSubresource(&v1alpha1.VsphereCloudConfig{}).WithObjects(objects...).Build()
	s.letIn(t, "a", "b")
	s.Inspector = New(s.api, s.api, &logins.Logins{})
	s.inspect = func(ctx context.Context, target vcenter.Target, _ vcenter.Ask) preflight.VCenter {
		v := s.answer(target.Host, func(err error) error {
			return target.Turn(ctx, func() error { s.tried <- target.Host; return err })
		})
		v.Server, v.Username, v.Ends = target.Host, target.Username, target.Ends
		return v
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// letIn notes that vCenters let in what is in the Secret.
func (s *site) letIn(t *testing.T, names ...string) {
	for _, name := range names {
		var v v1alpha1.VsphereCloudConfig
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &v))
		read, err := credentials.Read(t.Context(), s.api, &v)
		require.NoError(t, err)
		v.Status.VerifiedCredentials, v.Status.ObservedGeneration = read.Version, v.Generation
		require.NoError(t, s.api.Status().Update(t.Context(), &v))
	}
}

// ask asks until there is an answer to this question.
func (s *site) ask(t *testing.T, id string) []preflight.Result {
	q := preflight.Question{Of: types.NamespacedName{Namespace: "ns", Name: "site"}, ID: id, Spec: spec()}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if a := s.Look(q); a != nil && a.Question == id {
			return a.Results
		}
		require.True(t, time.Now().Before(end), "no answer")
	}
}

func found(results []preflight.Result, id preflight.ID, on string) preflight.Result {
	for _, r := range results {
		if r.ID == id && (on == "" || r.On == on) {
			return r
		}
	}
	return preflight.Result{}
}

func loggedIn(_ string, login func(error) error) preflight.VCenter {
	if err := login(nil); err != nil {
		return preflight.VCenter{Err: err}
	}
	return preflight.VCenter{
		Version:  "8.0.3",
		Contents: preflight.Contents{Categories: map[string]preflight.TagCategory{"zone": {}}, Objects: map[preflight.Ref]preflight.Object{}},
		Account:  preflight.Account{Excess: []preflight.Lack{{Object: "/", Kind: privileges.Root, Privileges: []string{"VirtualMachine.Interact.PowerOff"}}}},
	}
}

func TestARunAsksEachVCenterOnceAndTellsThatItIsAnswered(t *testing.T) {
	s := start(t, loggedIn)
	results := s.ask(t, "one")
	require.Len(t, s.tried, 2)
	require.Equal(t, preflight.Pass, found(results, "topology-category", "").Action)
	require.Contains(t, found(results, "vcenter-account", "a").Found, "its password ends on 2020-01-01")
	select {
	case e := <-s.Answered():
		require.Equal(t, "ns/site", e.Object.GetNamespace()+"/"+e.Object.GetName())
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
	require.Equal(t, results, s.ask(t, "one"))
	require.Len(t, s.tried, 2, "it is known")
}

// A password that was refused is not tried again: not by another inspection, not at the
// other vCenter, and not by the check of the VsphereCloudConfig.
func TestAnInspectionTriesNoPasswordThatWasRefused(t *testing.T) {
	refused := &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc", Err: errors.New("refused")}
	s := start(t, func(_ string, login func(error) error) preflight.VCenter {
		return preflight.VCenter{Err: login(refused)}
	})
	for _, id := range []string{"one", "two", "three"} {
		results := s.ask(t, id)
		require.Equal(t, preflight.BlockInstall, found(results, "vcenter-account", "").Action)
		require.Len(t, s.tried, 1, "one login for two vCenters, however often it is asked")
		ends := func(r preflight.Result) bool { return r.Found == "its password ends on 2020-01-01" }
		require.True(t, slices.ContainsFunc(results, ends), "%v", results)
	}
	host := <-s.tried
	known := s.logins.Known(logins.Question{Host: host, Username: "vdo@site", Password: "canary", Asker: "check",
		Trust: logins.TrustOf(&v1alpha1.VsphereCloudConfigSpec{}, nil)}, time.Now())
	require.NotNil(t, known, "whoever else logs in is told")
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(known.Err))
}

func TestWhatNoVCenterLetInIsNotTried(t *testing.T) {
	s := start(t, loggedIn)
	var secret corev1.Secret
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "creds"}, &secret))
	secret.Data["password"] = []byte("canary-2")
	require.NoError(t, s.api.Update(t.Context(), &secret))
	s.letIn(t, "b")
	results := s.ask(t, "one")
	require.Len(t, s.tried, 1)
	require.Equal(t, "b.site", <-s.tried)
	require.Contains(t, found(results, "vcenter-connection", "a").Found, "has not been checked since")

	require.NoError(t, s.api.Delete(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}))
	require.Equal(t, preflight.Warn, found(results, "vcenter-excess", "b").Action)
	results = s.ask(t, "two")
	require.Contains(t, found(results, "vcenter-account", "a").Found, "not found, though spec.")
	require.Zero(t, found(results, "vcenter-excess", ""), "what drivers need in b is not known: the name may be meant for it")
}

func TestAMissingDatacenterIsNoRefusedAccount(t *testing.T) {
	s := start(t, loggedIn)
	var v v1alpha1.VsphereCloudConfig
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, &v))
	v.Status.VerifiedCredentials, v.Status.MissingDatacenters = "", []string{"dc"}
	v.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 1,
		Reason: string(fault.NotFound), Message: "dc is not there", LastTransitionTime: metav1.Now()}}
	require.NoError(t, s.api.Status().Update(t.Context(), &v))
	results := s.ask(t, "one")
	require.Contains(t, found(results, "vcenter-datacenters", "a").Found, "dc is not there")
	require.Equal(t, "its password ends on 2020-01-01", found(results, "vcenter-account", "a").Found)
}

// While an inspection reads, the vCenter can be checked: only the login itself is one at a
// time.
func TestALongInspectionHoldsUpNoLogin(t *testing.T) {
	reading, goOn := make(chan struct{}, 2), make(chan struct{})
	s := start(t, func(host string, login func(error) error) preflight.VCenter {
		v := loggedIn(host, login)
		reading <- struct{}{}
		<-goOn
		return v
	})
	for end := time.Now().Add(time.Minute); len(reading) < 2; time.Sleep(time.Millisecond) {
		require.Nil(t, s.Look(preflight.Question{Of: types.NamespacedName{Namespace: "ns", Name: "site"}, ID: "one", Spec: spec()}))
		require.True(t, time.Now().Before(end), "the second vCenter waits for the first")
	}
	known, leave, err := s.logins.Enter(t.Context(), logins.Question{Host: "a.site", Username: "vdo@site", Password: "canary"}, time.Now)
	require.NoError(t, err)
	require.Nil(t, known)
	leave()
	close(goOn)
	s.ask(t, "one")
}

// What no one expects of a vCenter ends neither the operator nor the way to the vCenter.
func TestAnUnexpectedAnswerEndsNothing(t *testing.T) {
	s := start(t, loggedIn)
	s.reader = panics{s.reader}
	require.Contains(t, found(s.ask(t, "one"), "cluster", "").Found, "does not expect")
}

// panics reads no nodes.
type panics struct{ client.Reader }

func (p panics) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, nodes := list.(*corev1.NodeList); nodes {
		panic("canary")
	}
	return p.Reader.List(ctx, list, opts...)
}
