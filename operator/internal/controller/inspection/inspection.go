// Package inspection asks cluster and vCenters what the checks of package preflight look
// at, beside the passes of a VDOConfig, which never wait:
//
//	answer := inspector.Look(question) // the last answer; what is due is begun
//
// A run reads the cluster once and each vCenter in one session, side by side. It is due
// where the question is another one, where a person asks for a pass (until the status has
// what was found for that one: an operator that ended meanwhile looks after its start), and at
// the interval of spec.preflight; while something is kept back, or could not be read, after a
// minute, two, four, up to ten. There is one run at a time for a VDOConfig. When it ends a pass
// is requested ([Inspector.Answered]). Of what was read nothing is kept but the results.
//
// A vCenter is logged in to only with what its VsphereCloudConfig was let in with, and
// through the operator's one memory of logins (package logins): a password that was refused
// is not tried again by an inspection, and one that an inspection sees refused is not tried
// again by the check of the VsphereCloudConfig.
package inspection

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const (
	// firstRetry is the wait after a run that kept something back; it doubles up to
	// [preflight.LastRetry].
	firstRetry = time.Minute
	// timeout bounds a run.
	timeout = 10 * time.Minute
	// sideBySide is how many vCenters are asked at once.
	sideBySide = 5
)

// Options of an Inspector. Client, Reader and Logins are required.
type Options struct {
	Client client.Reader // of the operator's own kinds
	Reader client.Reader // past every cache: of Secrets, and of what there is one of for each node
	Logins *logins.Logins
	// Inspect asks a vCenter; default [vcenter.Inspect].
	Inspect func(context.Context, vcenter.Target, vcenter.Ask) preflight.VCenter
	Now     func() time.Time // default time.Now
}

// Inspector finds answers while it runs (Start). Make one with New.
type Inspector struct {
	Options
	answered chan event.GenericEvent

	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // of Start: runs end with it
	runs sync.WaitGroup
	of   map[types.NamespacedName]*state
}

// state is what is known of one VDOConfig's questions.
type state struct {
	answer  *preflight.Answer
	pass    string // the last one that a run was made for
	running bool
	failed  int // runs in a row that kept something back
}

// New makes an Inspector that answers nothing before it is started.
func New(o Options) *Inspector {
	if o.Inspect == nil {
		o.Inspect = vcenter.Inspect
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Inspector{Options: o, answered: make(chan event.GenericEvent, 16), of: map[types.NamespacedName]*state{}}
}

// Answered tells of VDOConfigs whose question was answered.
func (i *Inspector) Answered() <-chan event.GenericEvent { return i.answered }

// Start lets runs begin until ctx is over, and returns when all have ended.
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

// Look returns the last answer for a VDOConfig, even to another question, nil for none. It
// never waits: a run that is due is begun.
func (i *Inspector) Look(q preflight.Question) *preflight.Answer {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.of[q.Of]
	if s == nil {
		s = &state{}
		i.of[q.Of] = s
	}
	if i.ctx != nil && !s.running && s.due(q, i.Now()) {
		s.running, s.pass = true, q.Pass
		q.Spec = q.Spec.DeepCopy()
		i.runs.Add(1)
		go i.run(i.ctx, q, s)
	}
	return s.answer
}

// due says whether a question is to be asked now. After a restart of the operator the
// status tells when it was answered.
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
		failed = max(failed, 1) // how often is not known after a restart
	}
	wait := pause(q.Spec, failed)
	return at.IsZero() || at.After(now) || now.Sub(at) >= time.Duration(logins.Tolerance*float64(wait))
}

// pause is the time between the last run and the next one, after so many in a row that kept
// something back.
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

// run finds an answer, and tells of it.
func (i *Inspector) run(ctx context.Context, q preflight.Question, s *state) {
	defer i.runs.Done()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := i.results(bounded, q)
	i.mu.Lock()
	s.running = false
	if ctx.Err() == nil { // nothing was found out by a run that the operator's end cut short
		s.answer = &preflight.Answer{Question: q.ID, Pass: q.Pass, At: i.Now().Truncate(time.Second), Results: results}
		if s.failed++; preflight.Worst(preflight.Turned(results, q.Spec.Preflight)) < preflight.BlockInstall {
			s.failed = 0
		}
	}
	i.mu.Unlock()
	config := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: q.Of.Namespace, Name: q.Of.Name}}
	select {
	case i.answered <- event.GenericEvent{Object: config}:
	default: // a pass is requested already; the interval comes round
	}
}

// errUnexpected is what is said of a panic: its text may quote what someone else wrote.
var errUnexpected = fault.Errorf(fault.Internal, "check", "what was found",
	"report it with the operator's version; where one check is at fault, spec.preflight can turn it down",
	"something came that this program does not expect")

// results asks cluster and vCenters. A run is beside the passes, where no one else catches a
// panic: it would end the operator, and its repairs, again after each start.
func (i *Inspector) results(ctx context.Context, q preflight.Question) (results []preflight.Result) {
	wants, uses := preflight.WantsOf(q.Spec)
	defer func() {
		if recover() != nil {
			results = preflight.Check(preflight.Snapshot{Now: i.Now(), Wants: wants, Cluster: preflight.Cluster{Err: errUnexpected}})
		}
	}()
	s := preflight.Snapshot{Now: i.Now(), Wants: wants, Cluster: clusterstate.Read(ctx, i.Reader, q.Spec.ExcludedNodes), VCenters: make([]preflight.VCenter, len(uses))}
	var g errgroup.Group
	g.SetLimit(sideBySide)
	for n, u := range uses {
		g.Go(func() error {
			ask := vcenter.Ask{Nodes: s.Cluster.Nodes, Features: wants.FeaturesAt(u), Categories: wants.AllCategories(),
				Policies: s.Cluster.Policies()}
			v := i.vcenter(ctx, q.Of.Namespace, u.Name, ask)
			v.Name, v.UsedByCPI, v.UsedByCSI = u.Name, u.CPI, u.CSI
			s.VCenters[n] = v
			return nil
		})
	}
	_ = g.Wait() // each vCenter's fault is in its result
	return preflight.Check(s)
}
