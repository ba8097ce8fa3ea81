// Package fault holds the one kind of error that a person can act on.
//
// A fault says what was being done (Op), to what (Subject), why it could not be
// done (Err), what to do about it (Hint), and a machine-readable Reason. The same
// value is printed by the command-line tools, becomes the reason and message of a
// condition, and the text of an event, so that a user reads the same words
// everywhere.
//
//	return &fault.Error{
//		Reason:  fault.Unauthorized,
//		Op:      "resolve",
//		Subject: "registry.site/vdo/drivers:1",
//		Hint:    "log in with `docker login registry.site` or set spec.pullSecret",
//		Err:     err,
//	}
//
// Faults are found with errors.As; [ReasonOf] and [HintOf] are short for that.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reason tells kinds of fault apart. It is a CamelCase word, fit for the reason
// field of a Kubernetes condition, and is part of the API: tools match on it.
type Reason string

// The reasons. Each maps to one exit code of the command-line tools.
const (
	// Internal is a defect of the program: the user can only report it.
	Internal Reason = "Internal"
	// InvalidInput is a flag, argument, file or field that cannot be understood.
	InvalidInput Reason = "InvalidInput"
	// NotFound is a thing that was named and is not there.
	NotFound Reason = "NotFound"
	// Conflict is a thing that is there and must not be.
	Conflict Reason = "Conflict"
	// Unreachable is a host that does not answer: DNS, TCP, timeout, 5xx.
	Unreachable Reason = "Unreachable"
	// Throttled is a host that answers "later" (429) for longer than we wait.
	Throttled Reason = "Throttled"
	// CertificateInvalid is a TLS certificate that is not trusted.
	CertificateInvalid Reason = "CertificateInvalid"
	// Unauthorized is a missing or wrong credential (401, InvalidLogin).
	Unauthorized Reason = "Unauthorized"
	// Forbidden is a right credential without the right (403, NoPermission).
	Forbidden Reason = "Forbidden"
	// AccountLocked is an account that refuses logins after failed ones.
	AccountLocked Reason = "AccountLocked"
	// Corrupt is data whose digest, size or form is not what it must be.
	Corrupt Reason = "Corrupt"
	// Incomplete is a set of data with parts missing.
	Incomplete Reason = "Incomplete"
	// Untrusted is data whose signature does not satisfy the policy.
	Untrusted Reason = "Untrusted"
	// Expired is a document or key past its time.
	Expired Reason = "Expired"
	// Superseded is a document older than one already accepted.
	Superseded Reason = "Superseded"
	// Incompatible is a combination that no release supports.
	Incompatible Reason = "Incompatible"
	// Refused is an action that policy forbids.
	Refused Reason = "Refused"
	// Storage is a local file that cannot be read or written: full, read-only.
	Storage Reason = "Storage"
	// Interrupted is work that the user or the system stopped; it can go on.
	Interrupted Reason = "Interrupted"
)

// ErrOutdated is why a Conflict needs no one: what was decided on has changed meanwhile, and is
// decided on again.
var ErrOutdated = errors.New("it changed meanwhile")

// Error is a fault. The zero value of every field is allowed; an Error without
// an Err reads on its Op and Subject alone.
type Error struct {
	Reason  Reason // kind, for machines
	Op      string // what was being done: a verb such as "pull" or "parse"
	Subject string // what it was done to: a file, reference, field; no secrets
	Hint    string // what to do: a command or an edit; one sentence, no full stop
	Err     error  // why
}

// Error returns "op subject: why". The hint is not part of it: print it with [Text].
func (e *Error) Error() string {
	head := strings.TrimSpace(e.Op + " " + e.Subject)
	switch {
	case e.Err == nil && head == "":
		return string(e.Reason)
	case e.Err == nil:
		return head
	case head == "":
		return e.Err.Error()
	}
	return head + ": " + e.Err.Error()
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns a fault whose cause is [fmt.Errorf] of format and args.
func Errorf(reason Reason, op, subject, hint, format string, args ...any) *Error {
	return &Error{Reason: reason, Op: op, Subject: subject, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// ReasonOf returns the reason of the outermost fault in err that has one, or
// Internal. It returns "" for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	for _, f := range All(err) {
		if f.Reason != "" {
			return f.Reason
		}
	}
	return Internal
}

// gravity orders reasons where there are several: what proves tampering comes first,
// what may pass by itself comes last.
var gravity = []Reason{
	Interrupted, Untrusted, Corrupt, Superseded, Expired, Internal, Storage, InvalidInput, Refused, Conflict, Incompatible,
	AccountLocked, Unauthorized, Forbidden, NotFound, CertificateInvalid, Unreachable, Throttled, Incomplete,
}

// Reasons returns all reasons.
func Reasons() []Reason { return slices.Clone(gravity) }

// Graver reports whether a is graver than b. A reason that is not known is as grave as
// Internal, and every reason graver than "".
func Graver(a, b Reason) bool { return rank(a) < rank(b) }

func rank(r Reason) int {
	if r == "" {
		return len(gravity)
	}
	if i := slices.Index(gravity, r); i >= 0 {
		return i
	}
	return slices.Index(gravity, Internal)
}

// Passing reports whether what has this reason may pass by itself, so that it is worth
// trying again.
func (r Reason) Passing() bool { return r == Unreachable || r == Throttled || r == Incomplete }

// Gravest returns the reason that decides what is to be done about err, or "" where no
// fault in it has one. It is the reason of the outermost fault; of joined errors, the
// gravest of theirs. What would be worth another try is not where something inside of
// it will be the same again: of many items that failed for the network and one that
// was tampered with, tampering is the reason.
func Gravest(err error) Reason {
	var inside Reason
	for _, e := range below(err) {
		if r := Gravest(e); Graver(r, inside) {
			inside = r
		}
	}
	f, ok := err.(*Error) //nolint:errorlint // the tree is walked node by node
	if ok && f.Reason != "" && (!f.Reason.Passing() || !inside.decides()) {
		return f.Reason
	}
	return inside
}

// decides reports whether a reason is that of a whole in which it is only a part. That
// something is not there is what makes the whole incomplete.
func (r Reason) decides() bool {
	return r != "" && !r.Passing() && r != Internal && r != Interrupted && r != NotFound && r != CertificateInvalid
}

// HintOf returns the first hint in err's tree, outermost first, or "".
func HintOf(err error) string {
	for _, f := range All(err) {
		if f.Hint != "" {
			return f.Hint
		}
	}
	return ""
}

// CauseOf drops operation and subject of the outermost fault in err, for who knows better ones.
func CauseOf(err error) error {
	if f, ok := errors.AsType[*Error](err); ok && f.Err != nil {
		return f.Err
	}
	return err
}

// All returns the faults in err's tree, outermost first, joined errors in order.
func All(err error) (out []*Error) {
	if f, ok := err.(*Error); ok { //nolint:errorlint // the tree is walked node by node
		out = append(out, f)
	}
	for _, e := range below(err) {
		out = append(out, All(e)...)
	}
	return out
}

// below returns what an error wraps.
func below(err error) []error {
	switch u := err.(type) { //nolint:errorlint // of this node of the tree
	case interface{ Unwrap() error }:
		return []error{u.Unwrap()}
	case interface{ Unwrap() []error }:
		return u.Unwrap()
	}
	return nil
}

// Text returns what a person reads: the message and, after it, the hint.
// Several joined errors are given one a line, each with its own hint.
func Text(err error) string {
	var lines []string
	for _, e := range split(err) {
		line := e.Error()
		if hint := HintOf(e); hint != "" {
			line += " (" + hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// split returns the members of a joined error, flattened; any other error is its
// own only member, and nil has none.
func split(err error) []error {
	if err == nil {
		return nil
	}
	u, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only the outermost level is split
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range u.Unwrap() {
		out = append(out, split(e)...)
	}
	return out
}

// Join returns all non-nil errors as one, sorted by message so that the same
// problems always read the same, or nil when there is none.
func Join(errs ...error) error {
	var all []error
	for _, e := range errs {
		all = append(all, split(e)...)
	}
	if len(all) == 1 {
		return all[0]
	}
	slices.SortStableFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
}

// Few names the first of some things, at most so many, and counts the rest: "a, b and 3 more".
func Few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Distinct drops, of what Join has joined, a fault that says what another one says
// already.
func Distinct(err error) error {
	seen := map[string]bool{}
	return Join(slices.DeleteFunc(split(err), func(e error) bool {
		twice := seen[e.Error()]
		seen[e.Error()] = true
		return twice
	})...)
}

const maxListed = 50 // problems of one thing

// List collects what is wrong with one thing. It keeps the first 50 problems and counts the
// others, so that a hostile input cannot fill memory and screen.
type List struct {
	kept  []error
	more  int
	worst Reason // of the others
}

// Add takes a problem; nil is none.
func (l *List) Add(err error) {
	switch {
	case err == nil:
	case len(l.kept) < maxListed:
		l.kept = append(l.kept, err)
	default:
		l.more++
		if r := Gravest(err); Graver(r, l.worst) {
			l.worst = r
		}
	}
}

// Join returns the problems as [Join] does, and how many more there are. Op and subject say
// of what.
func (l *List) Join(op, subject string) error {
	err := Join(l.kept...)
	if l.more > 0 {
		more := fmt.Errorf("%d more problems are not listed", l.more)
		err = Join(err, &Error{Reason: l.worst, Op: op, Subject: subject, Err: more})
	}
	return err
}
