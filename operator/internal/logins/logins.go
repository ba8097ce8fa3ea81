// Package logins keeps accounts of vCenters from being locked: all code of the operator logs in to vCenters through
// one [Logins].
//
//	known, leave, err := l.Enter(ctx, question, now) // waits while another caller uses the vCenter
//	defer leave()
//	if known != nil { … }                            // the answer, without a login
//	connect()
//	known, err = l.Login(ctx, question, now, login)  // waits while the account is tried elsewhere
//
// Connecting is not part of Login: a vCenter that hangs before it got a password delays no other use of the account.
// One that hangs after that does, until its caller gives up: it may refuse.
//
// vCenters count the failed logins of an account, not of a client, and lock it. The default is five failures within
// three minutes, for five minutes. DISA's STIG demands three within 15 minutes, for good. Therefore:
//
//   - A password that a vCenter refused is not tried there again for [Guard], by any caller, unless a reconcile is
//     requested.
//   - One account with one password is tried at one address at a time. Several vCenters may belong to one SSO domain,
//     which counts failures at all of them, and which is unknown before a login. After a refusal the same account and
//     password waits at all other addresses too, for [Delay], so that no two more are counted with it. An
//     address that accepted it after the first refusal is not delayed: a right password locks nothing. If one of
//     those refuses it, all are delayed again.
//   - Names that may be of one account count as one. A name without a domain is of the vCenter's default domain;
//     DOMAIN\name has a short name that an administrator chose; the suffix of name@domain may be no domain. Before a
//     login nothing tells which are the same. So with the same password, names with the same user part, in any letter
//     case, are one account at all addresses ([account]). A name that differs only in case or notation is the same
//     login ([spelled]). If the caller that was refused last asks the same vCenter in another way, an administrator
//     has corrected something, and it is tried.
//   - Another user, or another password, is tried at once.
//
// The memory is of one process, and reveals nothing about a password. [Logins.Recall] reads what an earlier process
// recorded, before the first login. A login without a recorded answer may have been refused: the account waits
// everywhere for [Unanswered].
package logins

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

const (
	// Guard is how long a refused password is not tried again where it was refused.
	Guard = time.Hour
	// Delay is how long the same account and password is not tried at other addresses.
	Delay = 10 * time.Minute
	// Tolerance is the share of a wait after which it counts as over: a reconcile may start that much early.
	Tolerance = 0.9
)

// Question is a vCenter and a login.
type Question struct {
	Host               string
	Port               int
	Username, Password string
	// Trust identifies the rule for the vCenter's certificate. Another rule has another answer: without an accepted
	// certificate no password is sent.
	Trust string
	// Asker identifies the caller. Pass is the last requested reconcile, "" for none, and Handled the last one that
	// ran: an earlier refusal does not answer a new request.
	Asker, Pass, Handled string
}

// String keeps the password out of logs.
func (q Question) String() string { return "login to " + q.address() }

// GoString keeps the password out of logs.
func (q Question) GoString() string { return q.String() }

func (q Question) address() string {
	return net.JoinHostPort(v1alpha1.CanonicalHost(q.Host), strconv.Itoa(q.Port))
}

// asked reports whether a requested reconcile has not run yet.
func (q Question) asked() bool { return q.Pass != "" && q.Pass != q.Handled }

// TrustOf returns the Trust of a resource and its CA certificates.
func TrustOf(spec *v1alpha1.VsphereCloudConfigSpec, ca []byte) string {
	return fmt.Sprintf("%t %q %q", spec.Insecure, spec.Thumbprint, ca)
}

// Known is an answer without a login.
type Known struct {
	Err error
	At  time.Time // time of the answer
	// Wait is how long the login is delayed, and Err is why; 0 if it is not delayed.
	Wait time.Duration
}

// Logins remembers the answers of vCenters. The zero value is ready; it is safe for concurrent use.
type Logins struct {
	// Past reads the recorded logins of earlier processes; nil: there are none. Beside an error it returns those that
	// it could read.
	Past func(context.Context) ([]Past, error)

	recall recall
	locks  keyedMutex

	mu       sync.Mutex
	key      []byte // of this process
	refusals map[hash]refusal
	accounts map[hash]*account
}

type hash [sha256.Size]byte

type refusal struct {
	err    error
	at     time.Time
	passes map[string]string // the requested reconcile in which each asker tried it
}

type account struct {
	refused      time.Time // last refusal; zero for never
	where, asker string    // of the last refusal
	lost         time.Time // last login without an answer; zero for never
	lostAt       string
	letIn        map[location]bool // locations whose last answer was yes, since the first refusal
}

// Enter waits until no other caller uses the vCenter, or ctx is over. It returns the answer if it is known, or the
// login is delayed. The caller calls leave after it used the vCenter.
func (l *Logins) Enter(ctx context.Context, q Question, now func() time.Time) (known *Known, leave func(), err error) {
	if err := l.Recall(ctx, now()); err != nil {
		return nil, nil, err
	}
	if leave, err = l.locks.enter(ctx, q.address()); err != nil {
		return nil, nil, err
	}
	return l.Known(q, now()), leave, nil
}

// Login logs in once no other caller tries the account and password, and learns the answer. If the answer is known by
// then, or the login is delayed, it does not log in: known and the error say why.
func (l *Logins) Login(ctx context.Context, q Question, now func() time.Time, login func() error) (known *Known, err error) {
	leave, err := l.locks.enter(ctx, fmt.Sprintf("%x", l.account(q)))
	if err != nil {
		return nil, err
	}
	defer leave()
	if known = l.Known(q, now()); known != nil {
		return known, known.Err
	}
	err = login()
	l.Learn(q, err, now())
	return nil, err
}

// Known returns the answer to a question, nil if a login is needed.
func (l *Logins) Known(q Question, now time.Time) *Known {
	of, same := l.login(q), l.account(q)
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.refusals[of]; ok && !over(r.at, Guard, now) {
		if q.asked() && q.Pass != r.passes[q.Asker] {
			return nil
		}
		return &Known{Err: r.err, At: r.at}
	}
	if q.asked() {
		return nil
	}
	a := l.accounts[same]
	if a == nil || a.letIn[q.location()] {
		return nil // a vCenter that hangs, or refuses, would delay a working one
	}
	if until := a.lost.Add(Unanswered); !a.lost.After(now) && now.Before(until) {
		return &Known{Wait: until.Sub(now), At: now, Err: fault.Errorf(fault.Throttled, "log in to", q.Host, "",
			"the same account and password was tried at %s at %s, and may have been refused; it is tried here at %s",
			a.lostAt, a.lost.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))}
	}
	if a.where == q.address() && a.asker == q.Asker || over(a.refused, Delay, now) {
		return nil
	}
	until := a.refused.Add(Delay)
	return &Known{Wait: until.Sub(now), At: now, Err: fault.Errorf(fault.Throttled, "log in to", q.Host,
		"correct the password where it was refused; where this vCenter has an account of its own, give it a Secret of its own",
		"the same account and password was refused by %s at %s; it is tried here at %s, so that the account is not locked where both count its failures together",
		a.where, a.refused.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))}
}

// over reports whether a wait has ended. A clock that was set back ends it.
func over(begun time.Time, wait time.Duration, now time.Time) bool {
	return begun.After(now) || now.Sub(begun) >= time.Duration(Tolerance*float64(wait))
}

// Learn records the answer to a login. A fault that is no refusal changes nothing. An error that is no fault is no
// answer: the vCenter has the password, and may have refused it.
func (l *Logins) Learn(q Question, err error, now time.Time) {
	of, same := l.login(q), l.account(q)
	at := now.Truncate(time.Second) // whole seconds, as in a status
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	a := l.accounts[same]
	if a == nil {
		a = &account{letIn: map[location]bool{}}
		l.accounts[same] = a
	}
	switch {
	case err == nil:
		delete(l.refusals, of)
		a.letIn[q.location()] = true
		a.lost = time.Time{}
		if a.where == q.address() {
			a.refused = time.Time{}
		}
	case Refusing(err):
		passes := map[string]string{}
		maps.Copy(passes, l.refusals[of].passes)
		passes[q.Asker] = q.Pass
		l.refusals[of] = refusal{err: err, at: at, passes: passes}
		if a.refused.IsZero() || a.letIn[q.location()] {
			clear(a.letIn) // the password may have changed at every vCenter that accepted it
		}
		a.refused, a.where, a.asker = at, q.address(), q.Asker
	case len(fault.All(err)) == 0:
		delete(a.letIn, q.location())
		if !a.lost.IsZero() && a.lostAt != q.address() {
			clear(a.letIn) // two vCenters may have refused the password
		}
		a.lost, a.lostAt = now, q.address()
	}
}

// forget drops entries without an effect. It keeps an account's refusal longer than a refused login, to know which
// vCenters accept it meanwhile.
func (l *Logins) forget(now time.Time) {
	if l.refusals == nil {
		l.refusals, l.accounts = map[hash]refusal{}, map[hash]*account{}
	}
	maps.DeleteFunc(l.refusals, func(_ hash, r refusal) bool { return over(r.at, Guard, now) })
	maps.DeleteFunc(l.accounts, func(_ hash, a *account) bool {
		if over(a.refused, 2*Guard, now) {
			a.refused = time.Time{}
		}
		return a.refused.IsZero() && len(a.letIn) == 0 && over(a.lost, Unanswered, now)
	})
}

// Refusing reports whether a login failed because of the password.
func Refusing(err error) bool { return Refusal(fault.ReasonOf(err)) }

// Refusal reports whether a reason is that of a login that failed because of the password.
func Refusal(r fault.Reason) bool { return r == fault.Unauthorized || r == fault.AccountLocked }

func (l *Logins) login(q Question) hash {
	return l.sum("login", q.address(), spelled(q.Username), q.Password, q.Trust)
}

func (l *Logins) account(q Question) hash {
	return l.sum("account", user(q.Username), q.Password)
}

func (l *Logins) sum(parts ...string) hash {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.key == nil {
		l.key = make([]byte, sha256.Size)
		_, _ = rand.Read(l.key) // it never fails
	}
	h := hmac.New(sha256.New, l.key)
	for _, part := range parts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		_, _ = h.Write([]byte(part))
	}
	return hash(h.Sum(nil))
}

type location struct{ address, name string }

func (q Question) location() location { return location{q.address(), spelled(q.Username)} }

// spelled returns one form for all spellings of a name: vCenters ignore case, and name@domain is DOMAIN\name.
func spelled(username string) string { return strings.ToLower(privileges.DomainUser(username)) }

func user(username string) string {
	name := spelled(username)
	return name[strings.Index(name, `\`)+1:]
}

// keyedMutex is a set of mutexes by name; a wait ends with its context. It keeps one for each name: an address, or an
// account with its password.
type keyedMutex struct{ m sync.Map }

// enter waits until the mutex is free, or ctx is over. The caller calls leave when done.
func (l *keyedMutex) enter(ctx context.Context, name string) (leave func(), err error) {
	v, _ := l.m.LoadOrStore(name, make(chan struct{}, 1))
	lane, _ := v.(chan struct{})
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Unanswered is how long an account waits after a login without a recorded answer. Five failed logins in three minutes
// lock an account.
const Unanswered = time.Minute

// Past is the recorded result of a login by an earlier process.
type Past struct {
	Question Question
	At       time.Time // of the answer, or of the question
	Err      error     // a refusal or ErrLost; nil if the vCenter accepted it
}

// ErrLost is the result of a login whose answer was not recorded.
var ErrLost = errors.New("the answer is lost")

// recall is the state of the one read of [Logins.Past].
type recall struct {
	mu    sync.Mutex
	begun time.Time
	done  bool
}

// Recall learns the recorded logins of earlier processes, before the first login. [Logins.Enter] does it too. If some
// are unreadable for as long as failures are counted together, it continues with the readable ones.
func (l *Logins) Recall(ctx context.Context, now time.Time) error {
	l.recall.mu.Lock()
	defer l.recall.mu.Unlock()
	if l.recall.done || l.Past == nil {
		return nil
	}
	if l.recall.begun.IsZero() {
		l.recall.begun = now
	}
	past, err := l.Past(ctx)
	if err != nil && now.Sub(l.recall.begun) < Delay {
		return fmt.Errorf("recall which logins were refused: %w", err)
	}
	l.replay(past)
	l.recall.done = true
	return nil
}

// replay learns logins in order of time. Within one second refusals come last, after which all are delayed.
func (l *Logins) replay(past []Past) {
	slices.SortStableFunc(past, func(a, b Past) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(fault.ReasonOf(a.Err), fault.ReasonOf(b.Err)))
	})
	for _, p := range past {
		l.Learn(p.Question, p.Err, p.At)
	}
}
