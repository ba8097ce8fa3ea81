// Package inspection collects the facts for the checks of package preflight from the cluster and vCenters. It runs
// beside the passes of a VDOConfig, which never wait:
//
//	answer := inspector.Look(question) // the last answer; a run that is due starts
//
// A run reads the cluster once, and each vCenter in one session, in parallel. A run is due if one of these holds:
//
//   - The question changed.
//   - A person requests a pass, and the status does not have its results yet. So an operator that ended meanwhile runs
//     after its restart.
//   - The interval of spec.preflight is over. It is 1, 2, 4, up to 10 minutes while results gate or cannot be read.
//
// A VDOConfig has one run at a time. The end of a run requests a pass ([Inspector.Answered]). Only the results are
// kept.
//
// A run logs in to a vCenter only with the credentials that its VsphereCloudConfig had accepted, and through the shared
// memory of logins (package logins). So a password that an inspection or the check of the VsphereCloudConfig sees
// refused is not tried again by the other.
package inspection

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const (
	// firstRetry is the wait after a run with a gating result; it doubles up to [preflight.LastRetry].
	firstRetry = time.Minute
	timeout    = 10 * time.Minute
	// sideBySide is how many vCenters are asked in parallel.
	sideBySide = 5
)

// Inspector answers questions while it runs (Start). New returns one.
type Inspector struct {
	client  client.Reader // of the operator's own kinds
	reader  client.Reader // without a cache: of Secrets, and of objects that exist once for each node
	logins  *logins.Logins
	inspect func(context.Context, vcenter.Target, vcenter.Ask) preflight.VCenter // a vCenter
	now     func() time.Time

	answered chan event.GenericEvent

	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // of Start: runs end with it
	runs sync.WaitGroup
	of   map[types.NamespacedName]*state
}

type state struct {
	answer  *preflight.Answer
	pass    string // the requested pass of the last run
	running bool
	failed  int // number of consecutive runs with a gating result
}

// New returns an Inspector, which answers nothing before Start. c reads the operator's own kinds, and reader the
// others, without a cache.
func New(c, reader client.Reader, l *logins.Logins) *Inspector {
	return &Inspector{
		client: c, reader: reader, logins: l, inspect: vcenter.Inspect, now: time.Now,
		answered: make(chan event.GenericEvent, 16), of: map[types.NamespacedName]*state{},
	}
}

// Answered returns a channel with the VDOConfigs whose question was answered.
func (i *Inspector) Answered() <-chan event.GenericEvent { return i.answered }

// Start allows runs until ctx is done, and returns once all have ended.
func (i *Inspector) Start(ctx context.Context) error {
	i.mu.Lock()
	i.ctx = ctx
	i.mu.Unlock()
	<-ctx.Done()
	i.mu.Lock()
	i.ctx = nil
	i.mu.Unlock()
	i.runs.Wait()
	return nil
}

// Look returns the last answer for a VDOConfig, even to another question, nil if none. It starts a run that is due,
// and never waits.
func (i *Inspector) Look(q preflight.Question) *preflight.Answer {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.of[q.Of]
	if s == nil {
		s = &state{}
		i.of[q.Of] = s
	}
	if i.ctx != nil && !s.running && s.due(q, i.now()) {
		s.running, s.pass = true, q.Pass
		q.Spec = q.Spec.DeepCopy()
		i.runs.Add(1)
		go i.run(i.ctx, q, s)
	}
	return s.answer
}

// due reports whether a run is due. After a restart of the operator the status has the time of the last answer.
func (s *state) due(q preflight.Question, now time.Time) bool {
	if q.Requested() && q.Pass != s.pass {
		return true
	}
	at, failed := q.Known, s.failed
	switch {
	case s.answer != nil && s.answer.Question != q.ID:
		return true
	case s.answer != nil:
		at = s.answer.At
	case q.Gated:
		failed = max(failed, 1) // the number is unknown after a restart
	}
	wait := pause(q.Spec, failed)
	return at.IsZero() || at.After(now) || now.Sub(at) >= time.Duration(logins.Tolerance*float64(wait))
}

// pause returns the time between the last run and the next, after a number of consecutive runs with a gating result.
func pause(spec *v1alpha1.VDOConfigSpec, failed int) time.Duration {
	if failed == 0 {
		return preflight.Interval(spec)
	}
	d := firstRetry
	for range failed - 1 {
		d = min(2*d, preflight.LastRetry)
	}
	return min(d, preflight.Interval(spec))
}

func (i *Inspector) run(ctx context.Context, q preflight.Question, s *state) {
	defer i.runs.Done()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := i.results(bounded, q)
	i.mu.Lock()
	s.running = false
	if ctx.Err() == nil { // a run that the operator's end cuts short has no results
		s.answer = &preflight.Answer{Question: q.ID, Pass: q.Pass, At: i.now().Truncate(time.Second), Results: results}
		if s.failed++; preflight.Worst(preflight.Turned(results, q.Spec.Preflight)) < preflight.BlockInstall {
			s.failed = 0
		}
	}
	i.mu.Unlock()
	config := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: q.Of.Namespace, Name: q.Of.Name}}
	select {
	case i.answered <- event.GenericEvent{Object: config}:
	default: // a pass is already requested; the interval follows
	}
}

// errUnexpected replaces the text of a panic, which may quote foreign data.
var errUnexpected = fault.Errorf(fault.Internal, "check", "what was found",
	"report it with the operator's version; where one check is at fault, spec.preflight can turn it down",
	"something came that this program does not expect")

// results asks the cluster and vCenters. It recovers panics, since a run is outside of the passes: a panic would end
// the operator, and its repairs, after each start.
func (i *Inspector) results(ctx context.Context, q preflight.Question) (results []preflight.Result) {
	wants, uses := preflight.WantsOf(q.Spec)
	defer func() {
		if recover() != nil {
			results = preflight.Check(preflight.Snapshot{Now: i.now(), Wants: wants, Cluster: preflight.Cluster{Err: errUnexpected}})
		}
	}()
	s := preflight.Snapshot{Now: i.now(), Wants: wants, Cluster: clusterstate.Read(ctx, i.reader, q.Spec.ExcludedNodes), VCenters: make([]preflight.VCenter, len(uses))}
	var g errgroup.Group
	g.SetLimit(sideBySide)
	for n, u := range uses {
		g.Go(func() error {
			ask := vcenter.Ask{Nodes: s.Cluster.Nodes, Features: wants.FeaturesAt(u, &s.Cluster),
				Categories: wants.AllCategories(), Policies: s.Cluster.Policies()}
			v := i.vcenter(ctx, q.Of.Namespace, u.Name, ask)
			v.Use = u
			s.VCenters[n] = v
			return nil
		})
	}
	_ = g.Wait() // each vCenter's fault is in its result
	return preflight.Check(s)
}

// vcenter asks one vCenter, if it accepted the account and is not known to refuse it now.
func (i *Inspector) vcenter(ctx context.Context, namespace, name string, ask vcenter.Ask) preflight.VCenter {
	var vcc v1alpha1.VsphereCloudConfig
	if err := i.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &vcc); err != nil {
		return preflight.VCenter{Server: name, Unresolved: true, Err: unread(name, err)}
	}
	read, err := credentials.Read(ctx, i.reader, &vcc)
	if err != nil {
		return unasked(&vcc, read, err)
	}
	verified, ok := read.Verified(&vcc)
	if !ok {
		return unasked(&vcc, read, unverified(&vcc))
	}
	return i.ask(ctx, &vcc, verified, ask)
}

func unasked(vcc *v1alpha1.VsphereCloudConfig, c credentials.Credentials, err error) preflight.VCenter {
	return preflight.VCenter{Server: vcc.Spec.VcIP, Account: preflight.Account{Username: c.Username, Ends: c.Ends}, Err: err}
}

// ask logs in like all other code of the operator: one login at a time, and none with a refused password. Others may
// log in as soon as the vCenter has answered the login.
func (i *Inspector) ask(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig, account credentials.Verified, ask vcenter.Ask) preflight.VCenter {
	spec := &vcc.Spec
	q := logins.Question{
		Host: spec.VcIP, Port: int(spec.Port), Username: account.Username, Password: account.Password,
		Trust: logins.TrustOf(spec, account.CA), Asker: "inspection of " + string(vcc.UID),
	}
	known, leave, err := i.logins.Enter(ctx, q, i.now)
	if err != nil {
		return unasked(vcc, account.Credentials, err)
	}
	if known != nil {
		leave()
		return unasked(vcc, account.Credentials, known.Err)
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	target := vcenter.TargetOf(vcc, account.Username, account.Password, account.CA)
	target.Ends = account.Ends
	target.Turn = func(ctx context.Context, login func() error) error {
		defer leave()
		_, err := i.logins.Login(ctx, q, i.now, login)
		return err
	}
	return i.inspect(ctx, target, ask)
}

func unread(name string, err error) error {
	if apierrors.IsNotFound(err) {
		return render.NoVCenter("read", name)
	}
	return &fault.Error{Reason: fault.Internal, Op: "read", Subject: "VsphereCloudConfig " + name, Err: err}
}

// unverified returns why a vCenter is not asked: the fault of its own check.
func unverified(vcc *v1alpha1.VsphereCloudConfig) error {
	f := &fault.Error{Reason: fault.Incomplete, Op: "use", Subject: "VsphereCloudConfig " + vcc.Name,
		Err: errors.New("it has not been checked since its last change"), Hint: "see its conditions"}
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == vcc.Generation {
		f.Op = "check" // the fault's own is not known
		f.Reason, f.Err = fault.Reason(ready.Reason), errors.New(ready.Message)
		f.Hint = "correct what the VsphereCloudConfig's conditions name first"
		if f.Reason == fault.NotFound && len(vcc.Status.MissingDatacenters) > 0 {
			f.Op = "find datacenters in" // by which preflight knows the check
		}
	}
	return f
}
