package vspherecloudconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// checked is a resource whose check at now ended with err.
func checked(now time.Time, err error) *v1alpha1.VsphereCloudConfig {
	v := &v1alpha1.VsphereCloudConfig{}
	v.Generation = 3
	v.Spec.Interval = metav1.Duration{Duration: 10 * time.Minute}
	answer{version: "v1", found: vcenter.Report{Version: "8.0.3"}, err: err, at: now}.Record(v)
	return v
}

// unansweredAt is a resource that a question was noted at, for the Secret's version v1.
func unansweredAt(at time.Time) func(*v1alpha1.VsphereCloudConfig) {
	return func(v *v1alpha1.VsphereCloudConfig) { begin(v, "v1", at) }
}

func TestWhenToAskAgain(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	refusal := &fault.Error{Reason: fault.Unauthorized, Err: errors.New("refused")}
	away := &fault.Error{Reason: fault.Unreachable, Err: errors.New("away")}
	newSecret := func(v *v1alpha1.VsphereCloudConfig) {
		v.Status.CredentialsVersion = "v0"
		unansweredAt(now)(v)
		v.Status.CheckedAt.Time = now.Add(-time.Hour)
	}
	for name, c := range map[string]struct {
		err   error
		edit  func(*v1alpha1.VsphereCloudConfig)
		after time.Duration
		asks  bool
	}{
		"before the interval": {after: 8 * time.Minute, asks: false},
		"shortened by jitter": {after: 9 * time.Minute, asks: true},
		"spec changed":        {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Generation++ }, asks: true},
		"clock went back":     {after: -time.Minute, asks: true},
		"never checked":       {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status = v1alpha1.VsphereCloudConfigStatus{} }, asks: true},
		"no interval":         {edit: func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Interval.Duration = 0 }, after: 8 * time.Minute, asks: false},
		"refused":             {err: refusal, after: 50 * time.Minute, asks: false},
		"refused an hour ago": {err: refusal, after: time.Hour, asks: true},
		"refused, new Secret": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.CredentialsVersion = "v0" }, asks: true},
		"refused, asked for": {err: refusal, edit: func(v *v1alpha1.VsphereCloudConfig) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "x")
		}, asks: true},
		"away":                               {err: away, after: 0, asks: false},
		"away for ten seconds":               {err: away, after: 10 * time.Second, asks: true},
		"no answer for a minute":             {edit: unansweredAt(now.Add(time.Minute)), after: 2 * time.Minute, asks: false},
		"new Secret, no answer yet":          {edit: newSecret, after: 59 * time.Second, asks: false},
		"new Secret, no answer for a minute": {edit: newSecret, after: time.Minute, asks: true},
		"another Secret since the question": {edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CredentialsVersion = "v0"
			unansweredAt(now)(v)
			v.Status.AskedWith = "3 v0"
		}, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := checked(now, c.err)
			if c.edit != nil {
				c.edit(v)
			}
			wait := due(v, "v1", now.Add(c.after))
			require.Equal(t, c.asks, wait == 0, "wait %s", wait)
			require.LessOrEqual(t, wait, time.Hour)
		})
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	away := &fault.Error{Reason: fault.Unreachable, Op: "connect to", Subject: "vc.site", Err: errors.New("timeout")}
	refused := &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc.site", Err: errors.New("wrong password")}
	another := &fault.Error{Reason: fault.Conflict, Err: errors.New("another vCenter")}
	fit := vcenter.Report{Version: "8.0.3", APIVersion: "8.0.3.0", Build: "42", InstanceUUID: "a",
		Thumbprint: "AA:BB", User: "vdo@site", Datacenters: []string{"/a", "/b"}}
	of := func(version, uuid string) vcenter.Report {
		return vcenter.Report{Version: version, Build: "42", InstanceUUID: uuid}
	}
	const rest = " build 42, datacenters seen: "
	const warned = "; the storage driver from 3.1 on takes a user name only as NAME@DOMAIN, " +
		"of letters, digits, dots, underscores and hyphens"
	for name, c := range map[string]struct {
		user      string
		found     vcenter.Report
		err       error
		message   string // where it can be used, after "vCenter "
		verified  string
		remaining string
		accept    string // the instance UUID
		uuids     string // in use, and another one that was not accepted
		edited    bool   // in what no check depends on
	}{
		"can be used": {found: fit, message: "8.0.3" + rest + "2", verified: "new", remaining: "8.0.3", uuids: "a "},
		"can be used, with a warning": {
			user: "vdo", found: of("8.0.3", ""), message: "8.0.3" + rest + "0" + warned, verified: "new", remaining: "8.0.3"},
		"is away":                               {err: away, verified: "old", remaining: "7.0.3"},
		"is away since its spec was changed":    {err: away, accept: "b", uuids: "a z"},
		"is away, and its interval was changed": {err: away, edited: true, verified: "old", remaining: "7.0.3"},
		"refuses and told":                      {found: vcenter.Report{Version: "8.0.3"}, err: refused, remaining: "8.0.3"},
		"another vCenter": {
			found: vcenter.Report{Version: "9.0.0", InstanceUUID: "b"}, err: another, remaining: "7.0.3", uuids: "a b"},
		"another vCenter, accepted": {found: of("9.0.0", "b"), accept: "b",
			message: "9.0.0" + rest + "0", verified: "new", remaining: "9.0.0", uuids: "b "},
		"another vCenter, accepted, refuses": {
			found: of("9.0.0", "b"), err: refused, accept: "b", remaining: "9.0.0", uuids: "a "},
	} {
		t.Run(name, func(t *testing.T) {
			v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			v.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "since"}
			v.Status = v1alpha1.VsphereCloudConfigStatus{ObservedGeneration: 2, Version: "7.0.3", VerifiedCredentials: "old",
				InstanceUUID: "a", UnacceptedInstanceUUID: "z", Datacenters: []string{"/dc"}}
			if v.Spec.AcceptInstanceUUID = c.accept; c.accept != "" {
				v.Generation = 3
			}
			if c.edited {
				v.Generation, v.Status.VerifiedCredentials = 3, "old"+credentials.Checked(v)
			}
			state, config, message := condition.StateReady, "verified", "vCenter "+c.message
			if c.err != nil {
				state, config, message = condition.StateFault, "failed", fault.Text(c.err)
			}
			a := answer{version: "new", requested: "before", user: c.user, found: c.found, err: c.err, at: time.Now()}
			require.Equal(t, state, a.conditions(&v.Spec).Phase.State)
			a.Record(v)
			first := v.DeepCopy()
			a.Record(v)
			require.Equal(t, first, v, "recording it again changes nothing")
			require.Equal(t, message, meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady).Message)
			require.Equal(t, message, v.Status.Message)
			require.Equal(t, []string{c.found.APIVersion, c.found.Build, c.found.Thumbprint, c.found.User},
				[]string{v.Status.APIVersion, v.Status.Build, v.Status.Thumbprint, v.Status.User})
			verified := strings.TrimSuffix(v.Status.VerifiedCredentials, credentials.Checked(v))
			require.Equal(t, []string{config, c.verified, c.remaining}, []string{v.Status.Config, verified, v.Status.Version})
			if c.accept == "" && c.found.Datacenters == nil {
				require.Equal(t, []string{"/dc"}, v.Status.Datacenters, "they stay, as the version does")
			}
			if c.uuids != "" {
				require.Equal(t, c.uuids, v.Status.InstanceUUID+" "+v.Status.UnacceptedInstanceUUID)
			}
			require.Equal(t, "before", v.Status.HandledReconcileAt, "a pass that was asked for since is still to come")
		})
	}
}

// tries is a vCenter that takes one password, and an API server that shows each state a
// resource ever had: what a cache may still have when a pass begins.
type tries struct {
	t      *testing.T
	api    client.Client
	r      *Reconciler
	now    time.Time
	tried  []string // user and password, in order
	right  string   // the password
	states []*v1alpha1.VsphereCloudConfig
	// written counts the statuses that were.
	written int
	refuse  func(*v1alpha1.VsphereCloudConfig) error // a write of the status; nil: none is refused
}

// startLogins starts with resources, each a name and the host of its vCenter.
func startLogins(t *testing.T, resources ...string) *tries {
	t.Helper()
	l := &tries{t: t, right: "right", now: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)}
	api := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithStatusSubresource(&v1alpha1.VsphereCloudConfig{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: l.patch})
	for _, of := range resources {
		name, host, _ := strings.Cut(of, " ")
		api.WithObjects(&v1alpha1.VsphereCloudConfig{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Generation: 1},
			Spec:       v1alpha1.VsphereCloudConfigSpec{VcIP: host, Credentials: "creds", Interval: metav1.Duration{Duration: 10 * time.Minute}}})
	}
	l.api = api.WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "creds", Namespace: "ns", UID: "s"}}).Build()
	l.restart()
	return l
}

// restart makes an operator that remembers nothing.
func (l *tries) restart() {
	l.r = &Reconciler{
		Reader: l.api, Writer: condition.Writer{Client: l.api, Recorder: events.NewFakeRecorder(1000)},
		Check: l.check, Now: func() time.Time { return l.now }, Logins: &logins.Logins{Past: Past(l.api, "ns")},
	}
}

// patch is a write of a status, of which every state is kept.
func (l *tries) patch(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	v, ok := o.(*v1alpha1.VsphereCloudConfig)
	require.True(l.t, ok)
	if l.refuse != nil {
		if err := l.refuse(v); err != nil {
			return err
		}
	}
	err := c.SubResource(sub).Patch(ctx, o, p, opts...)
	if err == nil {
		l.written++
		l.states = append(l.states, v.DeepCopy())
	}
	return err
}

// check lets the right password in.
func (l *tries) check(ctx context.Context, q vcenter.Target) (vcenter.Report, error) {
	return vcenter.Report{Version: "8.0.3"}, q.Turn(ctx, func() error {
		l.tried = append(l.tried, q.Username+":"+string(q.Password))
		if string(q.Password) != l.right {
			return &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: q.Host, Err: errors.New("refused")}
		}
		return nil
	})
}

// secret writes the account, each time in a new version.
func (l *tries) secret(password string) {
	var s corev1.Secret
	require.NoError(l.t, l.api.Get(l.t.Context(), client.ObjectKey{Namespace: "ns", Name: "creds"}, &s))
	s.Data = map[string][]byte{"username": []byte("u"), "password": []byte(password)}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, "written", s.ResourceVersion)
	require.NoError(l.t, l.api.Update(l.t.Context(), &s))
}

func (l *tries) get(name string) *v1alpha1.VsphereCloudConfig {
	v := &v1alpha1.VsphereCloudConfig{}
	require.NoError(l.t, l.api.Get(l.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, v))
	return v
}

// pass is one over the newest state.
func (l *tries) pass(name string) {
	v := l.get(name)
	l.states = append(l.states, v.DeepCopy())
	_, err := l.r.Reconcile(l.t.Context(), v)
	require.NoError(l.t, err)
}

func (l *tries) reason(name string) string {
	l.t.Helper()
	return meta.FindStatusCondition(l.get(name).Status.Conditions, v1alpha1.ConditionReady).Reason
}

// What was found stays while checks are suspended; a spec that is changed meanwhile was not verified.
func TestASuspendedResourceIsLeftAlone(t *testing.T) {
	l := startLogins(t, "vc vc.site")
	l.secret("right")
	edited := func(edit func(*v1alpha1.VsphereCloudConfig)) {
		v := l.get("vc")
		edit(v)
		v.Generation++ // as the API server does
		require.NoError(t, l.api.Update(t.Context(), v))
		l.pass("vc")
	}
	verified := func() bool {
		v := l.get("vc")
		read, err := credentials.Read(t.Context(), l.api, v)
		require.NoError(t, err)
		_, is := read.Verified(v)
		return is
	}
	edited(func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Suspend = true })
	require.Equal(t, "Suspended", l.reason("vc"))
	require.Empty(t, l.tried)
	edited(func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Suspend = false })
	edited(func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Suspend = true })
	require.Equal(t, "Succeeded", l.reason("vc"))
	require.True(t, verified())
	edited(func(v *v1alpha1.VsphereCloudConfig) { v.Spec.VcIP = "elsewhere.site" })
	require.Equal(t, "Suspended", l.reason("vc"))
	require.Empty(t, l.get("vc").Status.Config)
	require.False(t, verified())
	require.Len(t, l.tried, 1)
}

// A label written while the vCenter is asked does not lose its answer, which is asked again only after a minute.
func TestALabelWrittenDuringACheckLosesNoAnswer(t *testing.T) {
	l := startLogins(t, "vc vc.site")
	l.secret("right")
	l.r.Check = func(ctx context.Context, q vcenter.Target) (vcenter.Report, error) {
		v := l.get("vc")
		metav1.SetMetaDataLabel(&v.ObjectMeta, "site", "a")
		require.NoError(t, l.api.Update(ctx, v))
		return l.check(ctx, q)
	}
	l.pass("vc")
	require.True(t, meta.IsStatusConditionTrue(l.get("vc").Status.Conditions, v1alpha1.ConditionReady))
	require.Equal(t, "a", l.get("vc").Labels["site"])
}

// All of this happens within a second, which the times in a status cannot tell apart.
func TestAPassFromAnOldCacheTriesNoPasswordAgain(t *testing.T) {
	for _, passwords := range [][]string{{"wrong-1", "wrong-2"}, {"wrong-1", "right", "wrong-2"}} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%q, restarts %v", passwords, restarts), func(t *testing.T) {
				l := startLogins(t, "vc vc.site")
				for i, password := range passwords {
					l.secret(password)
					l.pass("vc")
					for _, state := range l.states {
						if restarts {
							l.restart()
						}
						_, err := l.r.Reconcile(t.Context(), state.DeepCopy())
						require.NoError(t, err)
					}
					l.pass("vc")
					require.Len(t, l.tried, i+1, "one try for each password: %q", l.tried)
				}
				require.Equal(t, "Unauthorized", l.reason("vc"))
			})
		}
	}
}

// The API server takes nothing, then the question, and then no answer.
func TestWithoutAQuestionThereIsNoTryAndALostRefusalIsNotRepeated(t *testing.T) {
	l := startLogins(t, "vc vc.site")
	l.secret("wrong")
	for minute := range 43 {
		l.refuse = func(v *v1alpha1.VsphereCloudConfig) error {
			if minute < 3 || v.Status.CheckedAt != nil {
				return errors.New("etcdserver: mvcc: database space exceeded")
			}
			return nil
		}
		if _, err := l.r.Reconcile(t.Context(), l.get("vc")); minute < 3 || err != nil {
			require.ErrorContains(t, err, "database space exceeded")
		}
		require.Equal(t, minute >= 3, len(l.tried) == 1, l.tried)
		l.now = l.now.Add(time.Minute)
	}
	l.refuse = nil
	l.now = l.now.Add(time.Minute)
	l.pass("vc")
	require.Equal(t, "Unauthorized", l.reason("vc"))
	require.Len(t, l.tried, 1)
	require.Equal(t, 41*time.Minute, l.now.Sub(l.get("vc").Status.CheckedAt.Time).Truncate(time.Minute), "when it was asked, not when it was remembered")

	l.now = l.now.Add(20 * time.Minute)
	l.pass("vc")
	require.Len(t, l.tried, 2, "the hour is over")
}

func TestAnAccountIsTriedOnceHoweverManyUseIt(t *testing.T) {
	l := startLogins(t, "a vc.site", "b VC.site", "c vc.site", "d VC.site") // one host
	all := func() {
		for _, name := range []string{"a", "b", "c", "d"} {
			l.pass(name)
			require.Equal(t, "Unauthorized", l.reason(name))
		}
	}
	l.secret("wrong")
	all()
	require.Len(t, l.tried, 1)

	l.secret("wrong") // another version with the same content
	written := l.written
	all()
	require.Equal(t, written+4, l.written, "an answer that is known is all that is written")
	v := l.get("a")
	v.Spec.Datacenters, v.Generation = []string{"dc"}, 2
	require.NoError(t, l.api.Update(t.Context(), v))
	all()
	require.Len(t, l.tried, 1, "the account and the password are the same")

	v = l.get("b")
	metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "now")
	require.NoError(t, l.api.Update(t.Context(), v))
	all()
	all()
	require.Len(t, l.tried, 2, "asked for, once")

	l.secret("right")
	for _, name := range []string{"a", "b", "c", "d"} {
		l.pass(name)
		require.Equal(t, "Succeeded", l.reason(name))
	}
	require.Len(t, l.tried, 6, "what is let in locks nothing")
}

// Five vCenters of one SSO domain count the failures of an account together: five of them within three
// minutes lock it, for the drivers too. An operator that restarts before each look adds none.
func TestARefusedAccountIsNotTriedAtEachVCenterOfADomain(t *testing.T) {
	l := startDomain(t)
	all := func() {
		for _, name := range domain {
			l.restart()
			l.pass(name)
		}
	}
	l.secret("right")
	all()
	l.tried = nil
	l.secret("wrong")
	all()
	require.Len(t, l.tried, 1)
	require.Equal(t, "Unauthorized", l.reason("a"))
	for _, name := range domain[1:] {
		require.Equal(t, "Throttled", foundOf(l.get(name)))
		require.Contains(t, l.get(name).Status.Message, "refused by a.site:0 at 2026-01-02T03:04:05Z")
		require.NotEmpty(t, l.get(name).Status.VerifiedCredentials, "what it let in before goes on being used")
	}
	written := l.written
	for range 8 {
		l.now = l.now.Add(time.Minute)
		all()
	}
	require.Len(t, l.tried, 1)
	require.Equal(t, written, l.written, "what goes on waiting says nothing new")
	l.now = l.now.Add(time.Minute)
	all()
	require.Len(t, l.tried, 2, "one at a time")
	l.secret("right")
	all()
	require.Len(t, l.tried, 7)
}

// An operator that is killed at each login, as soon as another one begins: what it asked may
// have been refused.
func TestAnOperatorThatIsKilledAtEachLoginTriesOneAMinute(t *testing.T) {
	l := startDomain(t)
	l.secret("wrong")
	l.refuse = func(v *v1alpha1.VsphereCloudConfig) error {
		if v.Status.AskedWith == "" && foundOf(v) != "Throttled" {
			return errors.New("the operator is killed")
		}
		return nil
	}
	for range 18 { // three minutes
		for _, name := range domain {
			l.restart()
			_, err := l.r.Reconcile(t.Context(), l.get(name))
			if err != nil {
				require.ErrorContains(t, err, "the operator is killed")
			}
		}
		l.now = l.now.Add(10 * time.Second)
	}
	require.Len(t, l.tried, 3)
	require.Contains(t, l.get("e").Status.Message, "the same account and password was tried at a.site:0 at 2026-01-02T03:")
}

// A status of which the account cannot be read may be of any account: for a while no one is
// asked, and not for ever.
func TestWhileAnAccountThatWasRefusedCannotBeReadNobodyIsAsked(t *testing.T) {
	l := startDomain(t)
	l.secret("wrong")
	l.pass("a")
	l.restart()
	l.r.Logins.Past = Past(secretless{l.api}, "ns")
	for range 10 {
		_, err := l.r.Reconcile(t.Context(), l.get("b"))
		require.ErrorContains(t, err, "recall which logins were refused: read Secret ns/creds")
		require.Len(t, l.tried, 1)
		l.now = l.now.Add(time.Minute)
	}
	l.pass("b")
	require.Len(t, l.tried, 2)
}

// secretless reads no Secrets.
type secretless struct{ client.Reader }

func (s secretless) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*corev1.Secret); is {
		return errors.New("etcdserver: request timed out")
	}
	return s.Reader.Get(ctx, key, o, opts...)
}

// Nothing watches the earlier operator's Secrets, in kube-system. A corrected one is tried after a minute.
func TestASecretInKubeSystemIsReadEachMinute(t *testing.T) {
	l := startLogins(t, "vc vc.site")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "creds", Namespace: "ns"}}
	require.NoError(t, l.api.Delete(t.Context(), secret))
	for i, reason := range []string{"NotFound", "Unauthorized", "Unauthorized"} {
		if i == 1 {
			secret.Namespace = metav1.NamespaceSystem
			secret.Data = map[string][]byte{"username": []byte("u"), "password": []byte("wrong")}
			require.NoError(t, l.api.Create(t.Context(), secret))
		}
		result, err := l.r.Reconcile(t.Context(), l.get("vc"))
		require.NoError(t, err)
		require.Equal(t, reason, l.reason("vc"))
		require.Equal(t, time.Minute, result.RequeueAfter)
	}
	require.Len(t, l.tried, 1)
}

// A resource reads its Secret and its CA beside it.
func TestWhatAResourceReadsIsWatched(t *testing.T) {
	for kind, ca := range map[string]v1alpha1.KeyReference{"Secret": {Secret: "ca"}, "ConfigMap": {ConfigMap: "ca"}} {
		v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		v.Spec.Credentials, v.Spec.CA = "creds", &ca
		for namespace, near := range map[string]bool{"ns": true, "kube-system": false} {
			for _, of := range []string{"Secret", "ConfigMap"} {
				for name, wanted := range map[string]bool{"creds": of == "Secret", "ca": of == kind, "x": false} {
					o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
					require.Equal(t, near && wanted, reads(v, of, o), "%s %s/%s", of, namespace, name)
				}
			}
		}
	}
}

// domain are vCenters of one SSO domain with one account.
var domain = []string{"a", "b", "c", "d", "e"}

func startDomain(t *testing.T) *tries {
	t.Helper()
	return startLogins(t, "a a.site", "b b.site", "c c.site", "d d.site", "e e.site")
}

// foundOf is the reason of what was found last, also in a fault's grace.
func foundOf(v *v1alpha1.VsphereCloudConfig) string {
	if now := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReconciling); now != nil {
		return now.Reason
	}
	if ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}
