package serve

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/semaphore"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Accounts are the users of an htpasswd file with bcrypt hashes (htpasswd -B).
type Accounts struct {
	hashes map[string][]byte
	nobody []byte // hash to compare with for unknown users

	limit *semaphore.Weighted // hashing is slow on purpose: one per core
	// turns let each client check one unknown login at a time, so that wrong logins occupy one slot at most. Some
	// clients share a turn by chance.
	turns [256]*semaphore.Weighted
	seed  maphash.Seed
	key   []byte
	known sync.Map // keyed digests of correct logins
}

const (
	accountsHint = "make it with `htpasswd -B -c FILE USER`"
	maxAccounts  = 10000
)

func newAccounts(limit int) *Accounts {
	a := &Accounts{
		hashes: map[string][]byte{}, key: []byte(rand.Text()),
		limit: semaphore.NewWeighted(int64(limit)), seed: maphash.MakeSeed(),
	}
	for n := range a.turns {
		a.turns[n] = semaphore.NewWeighted(1)
	}
	return a
}

// ParseAccounts parses an htpasswd file; name is for errors.
func ParseAccounts(name string, data []byte) (*Accounts, error) {
	a := newAccounts(runtime.GOMAXPROCS(0))
	bad := func(format string, args ...any) error {
		return &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: name, Hint: accountsHint, Err: fmt.Errorf(format, args...)}
	}
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		_, err := bcrypt.Cost([]byte(hash))
		switch {
		case !ok || user == "":
			errs = append(errs, bad("line %d is not USER:HASH", n))
		case err != nil:
			errs = append(errs, bad("line %d: the hash of %.100q is not one of bcrypt", n, user))
		case a.hashes[user] != nil:
			errs = append(errs, bad("line %d: %.100q is there twice", n, user))
		default:
			a.hashes[user] = []byte(hash)
			a.nobody = a.hashes[user]
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, bad("%w", err))
	}
	if len(errs) == 0 && (len(a.hashes) == 0 || len(a.hashes) > maxAccounts) {
		errs = append(errs, bad("it has %d users", len(a.hashes)))
	}
	return a, fault.Join(errs...)
}

// Require serves only requests with a valid login (HTTP Basic).
func (a *Accounts) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, given := req.BasicAuth()
		right := false
		if given {
			var err error
			if right, err = a.check(req, user, password); err != nil {
				return // the client is gone
			}
		}
		if right {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		w.Header().Set("WWW-Authenticate", `Basic realm="vdo-bundle", charset="UTF-8"`)
		refuse(w, http.StatusUnauthorized, unauthorized, "log in")
	})
}

// check verifies a login. It caches correct ones by a keyed digest.
func (a *Accounts) check(req *http.Request, user, password string) (bool, error) {
	mac := hmac.New(sha256.New, a.key)
	fmt.Fprintf(mac, "%d:%s%s", len(user), user, password)
	login := string(mac.Sum(nil))
	if _, right := a.known.Load(login); right {
		return true, nil
	}
	done, err := a.turn(req)
	if err != nil {
		return false, err
	}
	defer done()
	hash, exists := a.hashes[user]
	if !exists {
		hash = a.nobody // takes as long as for a known user
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !exists {
		return false, nil
	}
	a.known.Store(login, true)
	return true, nil
}

// turn waits for the client's turn, then for a slot. It fails if the client disconnects.
func (a *Accounts) turn(req *http.Request) (done func(), err error) {
	address, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		address = req.RemoteAddr
	}
	turn := a.turnOf(address)
	if err := turn.Acquire(req.Context(), 1); err != nil {
		return nil, err
	}
	if err := a.limit.Acquire(req.Context(), 1); err != nil {
		turn.Release(1)
		return nil, err
	}
	return func() { a.limit.Release(1); turn.Release(1) }, nil
}

func (a *Accounts) turnOf(address string) *semaphore.Weighted {
	return a.turns[maphash.String(a.seed, address)%uint64(len(a.turns))]
}
