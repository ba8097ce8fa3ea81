// Package fault has the one kind of error that a person can act on.
//
// A fault has the operation (Op), its object (Subject), the cause (Err), the remedy (Hint), and a
// machine-readable Reason. The command-line tools print the same value that becomes the reason and
// message of a condition, and the text of an event. So users read the same words everywhere.
//
//	return &fault.Error{
//		Reason:  fault.Unauthorized,
//		Op:      "resolve",
//		Subject: "registry.site/vdo/drivers:1",
//		Hint:    "log in with `docker login registry.site` or set spec.pullSecret",
//		Err:     err,
//	}
//
// Use errors.As to find faults; [ReasonOf] and [HintOf] are shortcuts.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Reason is a kind of fault: a CamelCase word, fit for the reason field of a Kubernetes condition.
// It is part of the API: tools match on it.
type Reason string

// Reasons. Each maps to one exit code of the command-line tools.
const (
	// Internal is a defect of the program: the user can only report it.
	Internal Reason = "Internal"
	// InvalidInput is a flag, argument, file or field that is not valid.
	InvalidInput Reason = "InvalidInput"
	// NotFound is a named object that does not exist.
	NotFound Reason = "NotFound"
	// Conflict is an object that exists and must not.
	Conflict Reason = "Conflict"
	// Unreachable is a host that does not answer: DNS, TCP, timeout, 5xx.
	Unreachable Reason = "Unreachable"
	// Throttled is a host that answers "later" (429) for longer than the client waits.
	Throttled Reason = "Throttled"
	// CertificateInvalid is a TLS certificate that is not trusted.
	CertificateInvalid Reason = "CertificateInvalid"
	// Unauthorized is a missing or wrong credential (401, InvalidLogin).
	Unauthorized Reason = "Unauthorized"
	// Forbidden is a correct credential without the permission (403, NoPermission).
	Forbidden Reason = "Forbidden"
	// AccountLocked is an account that refuses logins after failed ones.
	AccountLocked Reason = "AccountLocked"
	// Corrupt is data whose digest, size or form is wrong.
	Corrupt Reason = "Corrupt"
	// Incomplete is a set of data with missing parts.
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
	// Storage is a place that cannot be read or written: full, read-only, over its quota.
	Storage Reason = "Storage"
	// Interrupted is work that the user or the system stopped; it can continue.
	Interrupted Reason = "Interrupted"
)

// ErrOutdated is the cause of a Conflict that resolves itself: the input of a decision changed
// meanwhile, and the program decides again.
var ErrOutdated = errors.New("it changed meanwhile")

// Error is a fault. Every field may be zero; without an Err the message is Op and Subject.
type Error struct {
	Reason  Reason // kind, for machines
	Op      string // operation: a verb such as "pull" or "parse"
	Subject string // object of it: a file, reference, field; no secrets
	Hint    string // remedy: a command or an edit; one sentence, no full stop
	Err     error  // cause
}

// ownPort matches this end of a connection in the texts of package net. It differs each time, and would let a status
// with the same fault change.
var ownPort = regexp.MustCompile(`[^\s">]+:\d+->`)

// login matches the user and the password in a URL, or a token, which a message never shows.
var login = regexp.MustCompile(`://[^/\s"]*@`)

// Error returns "op subject: why". Use [Text] to print the hint too.
func (e *Error) Error() string { return login.ReplaceAllString(e.text(), "://***@") }

func (e *Error) text() string {
	head := strings.TrimSpace(e.Op + " " + e.Subject)
	if e.Err == nil {
		return cmp.Or(head, string(e.Reason))
	}
	cause := ownPort.ReplaceAllString(e.Err.Error(), "")
	if head == "" {
		return cause
	}
	return head + ": " + cause
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns a fault whose cause is [fmt.Errorf] of format and args.
func Errorf(reason Reason, op, subject, hint, format string, args ...any) *Error {
	return &Error{Reason: reason, Op: op, Subject: subject, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// ReasonOf returns the reason of the outermost fault in err that has one, or Internal; "" for nil.
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

// gravity orders reasons: proofs of tampering come first, faults that may pass by themselves last.
var gravity = []Reason{
	Interrupted, Untrusted, Corrupt, Superseded, Expired, Internal, Storage, InvalidInput, Refused, Conflict, Incompatible,
	AccountLocked, Unauthorized, Forbidden, NotFound, CertificateInvalid, Unreachable, Throttled, Incomplete,
}

// Reasons returns all reasons.
func Reasons() []Reason { return slices.Clone(gravity) }

// Graver reports whether a is graver than b. An unknown reason is as grave as Internal, and every
// reason is graver than "".
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

// Passing reports whether a fault with this reason may pass by itself, so that a retry is useful.
func (r Reason) Passing() bool { return r == Unreachable || r == Throttled || r == Incomplete }

// Gravest returns the reason that decides how to handle err, or "" if no fault in it has one. It is
// that of the outermost fault, or the gravest of joined errors. A permanent fault inside replaces a
// passing reason: tampering decides over network errors.
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

// decides reports whether the reason of a part becomes that of the whole. NotFound does not: a
// missing part makes the whole incomplete.
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

// AdmissionHint returns the hint for an API server's answer that a policy or a quota caused, "" for any other. The
// answer's reason does not tell: a policy chooses its own.
func AdmissionHint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "exceeded quota"):
		return "raise the namespace's resource quota"
	case strings.Contains(text, "ValidatingAdmissionPolicy 'vdo-operator-rights'"):
		return "apply rbac-policy.yaml of the operator's version: " +
			"`vdo-bundle install-manifests BUNDLE --rbac-policy | kubectl apply -f -`"
	case strings.Contains(text, "ValidatingAdmissionPolicy 'vdo-sip-"):
		return "apply the SIP manifests of the operator's version, with its account in the policies: " +
			"`vdo-bundle install-manifests BUNDLE --sip`"
	case strings.Contains(text, "ValidatingAdmissionPolicy '"), strings.Contains(text, `" denied the request`):
		return "an admission policy of the cluster refuses it: correct what it names, or have an exception made there"
	}
	return ""
}

// CauseOf drops the operation and subject of the outermost fault in err, for callers with better ones.
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

// below returns the errors that an error wraps.
func below(err error) []error {
	switch u := err.(type) { //nolint:errorlint // of this node of the tree
	case interface{ Unwrap() error }:
		return []error{u.Unwrap()}
	case interface{ Unwrap() []error }:
		return u.Unwrap()
	}
	return nil
}

// Text returns the message followed by the hint. Joined errors take one line each, without the hint of the line before.
func Text(err error) string {
	var lines []string
	all := Split(err)
	for i, e := range all {
		line := e.Error()
		if hint := HintOf(e); hint != "" && (i == 0 || hint != HintOf(all[i-1])) {
			line += " (" + hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Split returns the members of a joined error, flattened. Any other error is its own only member; nil has none.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	u, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only the outermost level is split
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range u.Unwrap() {
		out = append(out, Split(e)...)
	}
	return out
}

// Join returns all non-nil errors as one, or nil. It sorts them by message, so that the same
// problems always have the same text.
func Join(errs ...error) error {
	var all []error
	for _, e := range errs {
		all = append(all, Split(e)...)
	}
	if len(all) == 1 {
		return all[0]
	}
	slices.SortStableFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
}

// Few lists at most the first few names and counts the rest: "a, b and 3 more".
func Few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Distinct drops errors with the same text as an earlier one from a result of Join.
func Distinct(err error) error {
	seen := map[string]bool{}
	return Join(slices.DeleteFunc(Split(err), func(e error) bool {
		twice := seen[e.Error()]
		seen[e.Error()] = true
		return twice
	})...)
}

const maxListed = 50 // problems of one object

// List collects the problems of one object. It keeps the first 50 and counts the others, so that
// hostile input cannot fill memory and screen.
type List struct {
	kept  []error
	more  int
	worst Reason // of the others
}

// Add adds a problem; it ignores nil.
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

// Join returns the problems as [Join] does, and the number of the others. Op and subject describe the object.
func (l *List) Join(op, subject string) error {
	err := Join(l.kept...)
	if l.more > 0 {
		more := fmt.Errorf("%d more problems are not listed", l.more)
		err = Join(err, &Error{Reason: l.worst, Op: op, Subject: subject, Err: more})
	}
	return err
}

// Control reports whether a terminal would act on a character instead of showing it. These are characters
// that move the cursor, including line breaks and tabs, and those that change the writing direction.
func Control(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Quote returns words as a shell reads them back, for commands in hints and for foreign names in
// hints. It quotes words with special characters of shells or unprintable ones.
func Quote(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return strings.Join(out, " ")
}

func quote(word string) string {
	switch {
	case strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }):
		return escaped(word)
	case word == "" || strings.ContainsFunc(word, special):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// special reports whether a character may have a special meaning in a shell.
func special(r rune) bool {
	plain := unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_@%+=:,./-", r)
	return !plain
}

// escaped returns a word in the quotes $'…' of POSIX 2024.
func escaped(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(word) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}
