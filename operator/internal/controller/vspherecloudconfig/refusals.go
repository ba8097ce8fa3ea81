package vspherecloudconfig

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// refusals remembers the logins that vCenters refused, for as long as they are left
// alone. It is beside the status because that can be lost, or be older than the truth, and
// because a vCenter counts the failures of an account and not those of a resource: a
// password that two resources share, or whose Secret was written again with the same
// content, is still the one that was refused. The zero value is ready.
type refusals struct {
	mu  sync.Mutex
	key []byte // of this process: what is kept tells nothing about a password
	of  map[login]refusal
}

// login identifies an account of a vCenter, a password, and what the vCenter is trusted by:
// a keyed hash of them. With another trust there is another answer: where it does not hold
// no password is sent.
type login [sha256.Size]byte

type refusal struct {
	err       error
	at        time.Time
	requested map[types.UID]string // the pass asked for that each resource tried it in
}

// over says whether the login may be tried again.
func (r refusal) over(now time.Time) bool {
	return r.at.After(now) || now.Sub(r.at) >= time.Duration(tolerance*float64(guard))
}

// remembered returns the refusal that answers a resource's question. There is none where
// the login was not refused of late, or where a pass was asked for since.
func (r *refusals) remembered(vcc *v1alpha1.VsphereCloudConfig, q Request, now time.Time) (refusal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.of[r.login(q)]
	if !ok || known.over(now) {
		return refusal{}, false
	}
	pass := requested(vcc)
	asked := pass != "" && pass != vcc.Status.HandledReconcileAt && pass != known.requested[vcc.UID]
	return known, !asked
}

// learn keeps the answer to a login, where it was refused. One of another kind leaves what
// is known as it is: a vCenter that is away says nothing about the password.
func (r *refusals) learn(vcc *v1alpha1.VsphereCloudConfig, q Request, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ login, known refusal) bool { return known.over(now) })
	of := r.login(q)
	switch {
	case err == nil:
		delete(r.of, of)
	case refusing(err):
		passes := map[types.UID]string{}
		maps.Copy(passes, r.of[of].requested)
		passes[vcc.UID] = requested(vcc)
		if r.of == nil {
			r.of = map[login]refusal{}
		}
		r.of[of] = refusal{err: err, at: now.Truncate(time.Second), requested: passes} // as the status has it
	}
}

// login hashes what a vCenter is asked with. The caller holds the lock.
func (r *refusals) login(q Request) login {
	if r.key == nil {
		r.key = make([]byte, sha256.Size)
		_, _ = rand.Read(r.key) // it never fails
	}
	h := hmac.New(sha256.New, r.key)
	for _, part := range []string{
		address(q.Spec), q.Username, string(q.Password),
		fmt.Sprint(q.Spec.Insecure), q.Spec.Thumbprint, string(q.CA),
	} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		_, _ = h.Write([]byte(part))
	}
	return login(h.Sum(nil))
}
