package serve

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Accounts are the users of an htpasswd file with bcrypt hashes (htpasswd -B).
type Accounts struct {
	hashes map[string][]byte
	nobody []byte // hash that is compared with for users who are not there

	slots chan struct{} // hashing is slow on purpose: one for each core
	// turns let a client have one login looked at that is not known, so that wrong ones
	// take one slot at most. Several clients share one by chance.
	turns [256]chan struct{}
	seed  maphash.Seed
	key   []byte
	mu    sync.Mutex
	known map[string]bool // keyed digests of logins that were right
}

const (
	accountsHint = "make it with `htpasswd -B -c FILE USER`"
	maxAccounts  = 10000
)

func newAccounts(slots int) *Accounts {
	a := &Accounts{
		hashes: map[string][]byte{}, known: map[string]bool{}, key: make([]byte, 32),
		slots: make(chan struct{}, slots), seed: maphash.MakeSeed(),
	}
	for n := range a.turns {
		a.turns[n] = make(chan struct{}, 1)
	}
	return a
}

// ParseAccounts reads an htpasswd file. name is for errors.
func ParseAccounts(name string, data []byte) (*Accounts, error) {
	a := newAccounts(runtime.GOMAXPROCS(0))
	if _, err := rand.Read(a.key); err != nil {
		return nil, err
	}
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

// Require lets those pass who log in (HTTP Basic).
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

var errGone = errors.New("the client is gone")

// check compares a login. One that was right is remembered, by a keyed digest of it.
func (a *Accounts) check(req *http.Request, user, password string) (bool, error) {
	mac := hmac.New(sha256.New, a.key)
	fmt.Fprintf(mac, "%d:%s%s", len(user), user, password)
	login := string(mac.Sum(nil))
	a.mu.Lock()
	right := a.known[login]
	a.mu.Unlock()
	if right {
		return true, nil
	}
	done, err := a.turn(req)
	if err != nil {
		return false, err
	}
	defer done()
	hash, there := a.hashes[user]
	if !there {
		hash = a.nobody // as long as for one who is
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !there {
		return false, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[login] = true
	return true, nil
}

// turn waits for the client's turn, and then for a slot.
func (a *Accounts) turn(req *http.Request) (done func(), err error) {
	address, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		address = req.RemoteAddr
	}
	turn := a.turnOf(address)
	select {
	case turn <- struct{}{}:
	case <-req.Context().Done():
		return nil, errGone
	}
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots; <-turn }, nil
	case <-req.Context().Done():
		<-turn
		return nil, errGone
	}
}

func (a *Accounts) turnOf(address string) chan struct{} {
	return a.turns[maphash.String(a.seed, address)%uint64(len(a.turns))]
}
