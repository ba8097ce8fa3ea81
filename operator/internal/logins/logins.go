// Package logins keeps accounts of vCenters from being locked: whoever in the operator logs
// in to a vCenter does it through one [Logins].
//
//	known, leave, err := l.Enter(ctx, question, now) // waits while someone else asks the vCenter
//	defer leave()
//	if known != nil { … }                            // the answer, without a login
//	connect()
//	known, err = l.Login(ctx, question, now, login)  // waits while the account is tried elsewhere
//
// The way to the login is no part of it: a vCenter that is silent before it has seen a
// password holds up no one who uses the same account elsewhere. One that is silent once it has
// it does, until whoever asks gives up: it may refuse.
//
// vCenters count the failed logins of an account, not of who makes them, and lock it: by
// default after five failures within three minutes, for five minutes. So
//
//   - a password that a vCenter refused is not tried there again for [Guard], whoever asks,
//     unless a person asks for a pass;
//   - one account with one password is tried at one address at a time. Several vCenters may
//     be of one SSO domain, which counts the failures at all of them together, and nothing
//     tells so before a login. After a refusal the same account and password is left alone
//     at all other addresses too, for [Delay], which is longer than failures are counted
//     together by default. An address that let it in after the first refusal is not delayed:
//     there the password is right, and what is right locks nothing. Once one of those refuses
//     it, all are delayed again;
//   - what may be one account counts as one. A name without a domain is one of the vCenter's
//     default domain; DOMAIN\name has a short name that an administrator chose; name@domain
//     may have a suffix that is no domain: nothing tells which of them name the same before a
//     login. So with the same password, names whose part for the user is the same, in any
//     letter case, are one account at all addresses ([account]), and a name that is only
//     written in another case or notation is the same login ([spelled]). Where whoever was
//     refused last asks the same vCenter in another way, a person has corrected something, and
//     it is tried;
//   - another user, or another password, is tried at once.
//
// It is memory of one process: what it holds tells nothing about a password. What a process
// before this one knew is taken from where that wrote it, before anything is asked
// ([Logins.Recall]). A login of which no answer is on record may have been refused: the
// account is left alone everywhere for [Unanswered].
package logins

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

const (
	// Guard is how long a refused password is left alone where it was refused.
	Guard = time.Hour
	// Delay is how long the same account and password is left alone elsewhere.
	Delay = 5 * time.Minute
	// Tolerance is the share of a wait after which it counts as over: a wait that starts a
	// pass may have been shortened by as much at most.
	Tolerance = 0.9
)

// Question is what a vCenter is asked with.
type Question struct {
	Host               string
	Port               int
	Username, Password string
	// Trust identifies what the vCenter's certificate is held against. With another one
	// there is another answer: where it does not hold no password is sent.
	Trust string
	// Asker identifies who asks, Pass the pass that a person asked for last, "" for none, and
	// Handled the one that was made last: a refusal answers no one who asked since.
	Asker, Pass, Handled string
}

// String keeps the password out of logs.
func (q Question) String() string { return "login to " + q.address() }

// GoString keeps the password out of logs.
func (q Question) GoString() string { return q.String() }

func (q Question) address() string {
	return net.JoinHostPort(v1alpha1.CanonicalHost(q.Host), strconv.Itoa(q.Port))
}

// asked says whether a person asked for a pass that was not made yet.
func (q Question) asked() bool { return q.Pass != "" && q.Pass != q.Handled }

// TrustOf is the Trust of a resource and the CA certificates that it names.
func TrustOf(spec *v1alpha1.VsphereCloudConfigSpec, ca []byte) string {
	return fmt.Sprintf("%t %q %q", spec.Insecure, spec.Thumbprint, ca)
}

// Known is an answer without a login.
type Known struct {
	Err error
	At  time.Time // when it was given
	// Wait is set where the login is only delayed: how long. Then Err says why.
	Wait time.Duration
}

// Logins remembers what vCenters answered. The zero value is ready; it is safe for use by
// several goroutines.
type Logins struct {
	// Past reads what is on record of logins before this process; nil: nothing is. What it
	// returns beside an error is what it could read.
	Past func(context.Context) ([]Past, error)

	recall recall
	locks  keyedMutex

	mu       sync.Mutex
	key      []byte // of this process
	refusals map[hash]refusal
	accounts map[hash]*account
}

// hash is a keyed one, of a login or an account.
type hash [sha256.Size]byte

// refusal is one login's.
type refusal struct {
	err    error
	at     time.Time
	passes map[string]string // the pass asked for that each asker tried it in
}

// account is one with one password, wherever it is used.
type account struct {
	refused      time.Time // last; zero for never
	where, asker string    // of that
	lost         time.Time // when it was requested last without an answer; zero for never
	lostAt       string
	letIn        map[location]bool // whose last answer was yes, since the first refusal of any
}

// Enter waits until no one else asks the vCenter, or ctx is over. It returns the answer where
// that is known, or the login is delayed. Call leave when the vCenter was asked.
func (l *Logins) Enter(ctx context.Context, q Question, now func() time.Time) (known *Known, leave func(), err error) {
	if err := l.Recall(ctx, now()); err != nil {
		return nil, nil, err
	}
	if leave, err = l.locks.enter(ctx, q.address()); err != nil {
		return nil, nil, err
	}
	return l.Known(q, now()), leave, nil
}

// Login logs in when no one else does with the account and password, and learns the answer.
// Where that is known by then, or the login is delayed, there is no login, and known says why,
// as the error does.
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

// Known returns the answer to a question, nil where the vCenter has to be asked.
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
		return nil // a vCenter that hangs, or refuses, would hold up one that is well
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

// over says whether a wait that began at some time is over. A clock that went back ends it.
func over(begun time.Time, wait time.Duration, now time.Time) bool {
	return begun.After(now) || now.Sub(begun) >= time.Duration(Tolerance*float64(wait))
}

// Learn keeps the answer to a login. One that is neither yes nor a refusal leaves what is known as it is. An
// error that is no fault is no answer: the vCenter has the password, and may have refused it.
func (l *Logins) Learn(q Question, err error, now time.Time) {
	of, same := l.login(q), l.account(q)
	at := now.Truncate(time.Second) // as a status has it
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
			clear(a.letIn) // the password may have been changed at every vCenter that let it in
		}
		a.refused, a.where, a.asker = at, q.address(), q.Asker
	case len(fault.All(err)) == 0:
		delete(a.letIn, q.location())
		if !a.lost.IsZero() && a.lostAt != q.address() {
			clear(a.letIn) // of two the password may be wrong by now
		}
		a.lost, a.lostAt = now, q.address()
	}
}

// forget drops what has no effect any more. That an account was refused is remembered for longer than a
// refusal, so that whoever lets it in meanwhile is known.
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

// Refusing says whether a login failed over the password.
func Refusing(err error) bool { return Refusal(fault.ReasonOf(err)) }

// Refusal says whether a reason is that of a login that failed over the password.
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

// location is where an account is used, and under which name.
type location struct{ address, name string }

func (q Question) location() location { return location{q.address(), spelled(q.Username)} }

// spelled is a name as one that is only written differently is spelled too: vCenters have
// no letter case in names, and name@domain is DOMAIN\name.
func spelled(username string) string { return strings.ToLower(privileges.DomainUser(username)) }

// user is the part of a name that is the user's own.
func user(username string) string {
	name := spelled(username)
	return name[strings.Index(name, `\`)+1:]
}

// keyedMutex are mutexes by name; a wait for one ends with its context. One stays for each name: an
// address, or an account with its password.
type keyedMutex struct{ m sync.Map }

// enter waits until the lane is free, or ctx is over. Call leave when done.
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
