package preflight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Question is what is asked for a VDOConfig. Who asks it again, with the same ID, may be
// told the answer of before.
type Question struct {
	Of types.NamespacedName // the VDOConfig
	// ID identifies what is asked: see [NewQuestion].
	ID   string
	Spec *v1alpha1.VDOConfigSpec
	// Pass is the one that a person asked for last, "" for none, and Handled the one that was
	// asked for last when the status' answer was looked for.
	Pass, Handled string
	// Known is when the status says that it was answered; zero where it does not. KeptBack is
	// set where the answer kept something back.
	Known    time.Time
	KeptBack bool
	// RolledOut is when the roll-out of what runs ended; zero where it did not. What was found
	// before may be over.
	RolledOut time.Time
}

// Place is where a vCenter is, and whether its account was let in.
type Place struct {
	Name, Where string
	Proven      bool
}

// Asked says whether a person asked for a pass that was not answered yet.
func (q *Question) Asked() bool { return q.Pass != "" && q.Pass != q.Handled }

// NewQuestion identifies a question by all that its answer depends on and that a person
// configures. What vCenters and nodes are like is found out anew at an interval.
func NewQuestion(of types.NamespacedName, spec *v1alpha1.VDOConfigSpec, places []Place) Question {
	wants, uses := WantsOf(spec)
	text, _ := json.Marshal(struct { //nolint:errchkjson // none of it can fail
		Wants    Wants
		Uses     []Use
		Places   []Place
		Excluded map[string]string
		Policy   *v1alpha1.PreflightPolicy
	}{wants, uses, places, spec.ExcludedNodes, spec.Preflight})
	sum := sha256.Sum256(text)
	return Question{Of: of, Spec: spec, ID: hex.EncodeToString(sum[:8])}
}

// Answer is what was found.
type Answer struct {
	Question string // its ID
	Pass     string // the one that was asked for when it was begun
	At       time.Time
	Results  []Result // before the configuration turns any down
}

// LastRetry is the longest time between checks while something is kept back, and
// defaultInterval the time between them else, where spec.preflight does not say.
const (
	LastRetry       = 10 * time.Minute
	defaultInterval = 30 * time.Minute
)

// Interval is the time between checks while nothing is kept back.
func Interval(spec *v1alpha1.VDOConfigSpec) time.Duration {
	if p := spec.Preflight; p != nil && p.Interval.Duration > 0 {
		return p.Interval.Duration
	}
	return defaultInterval
}
