// Package redfish powers hosts over their management controllers (BMC), by the resources
// of DMTF's Redfish specification (DSP0266): ServiceRoot, SessionService, Systems, and
// ComputerSystem with its action Reset.
//
//	state, err := client.Power(ctx, "node01", bmc)
//	done, err := client.Reset(ctx, "node01", bmc, redfish.Reboot, false)
//
// The protocol is gofish's. Ours is what a controller may not do, whatever it answers: it
// is spoken to at its own address alone, so that no link, redirect or action target leads
// the login elsewhere; answers are bounded in size, number and time; an answer that upsets
// the library is an error; and what reaches a person of its words is one short printable
// line without the login in it.
//
// Each call logs in and out again, since controllers have few sessions. Where there is no
// SessionService, HTTP basic authentication is used, as the specification has it. A login
// that was refused is not tried again before it changes, or for some minutes: controllers
// lock accounts.
package redfish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"
	schema "github.com/stmcginnis/gofish/redfish"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// Action is what may be done to a host's power.
type Action string

// The actions. Without force the operating system is asked; with force it is not.
const (
	Reboot Action = "reboot"
	On     Action = "on"
	Off    Action = "off"
)

const (
	defaultTimeout = 30 * time.Second // of one request
	refusedFor     = 10 * time.Minute
	systems        = "/redfish/v1/Systems"
)

// Client powers hosts. The zero value trusts no certificate that needs a private authority.
type Client struct {
	CA      []byte           // PEM: who may issue certificates of BMCs, besides the system's
	Proxy   *url.URL         // nil for none
	Timeout time.Duration    // of one request; 0: 30 s
	Now     func() time.Time // nil: time.Now

	// Refusals are those of this client and of others; nil for its own.
	Refusals *Refusals

	own Refusals
}

// Refusals remembers logins that were refused, by the controller's endpoint and the login,
// so that several clients hold them back together. The zero value remembers none.
type Refusals struct {
	mu    sync.Mutex
	until map[[sha256.Size]byte]time.Time
}

// Power returns the power state as the controller has it: On, Off, PoweringOn and the like.
func (c *Client) Power(ctx context.Context, host string, bmc jumphost.BMCHost) (string, error) {
	var state string
	err := c.with(ctx, host, bmc, func(s *schema.ComputerSystem) error {
		state = printable(string(s.PowerState))
		if state == "" {
			return errors.New("it says no power state")
		}
		return nil
	})
	return state, err
}

// Reset does an action and returns what was asked of the controller, in its words, or ""
// where there was nothing to do.
func (c *Client) Reset(ctx context.Context, host string, bmc jumphost.BMCHost, action Action, force bool) (string, error) {
	var asked schema.ResetType
	err := c.with(ctx, host, bmc, func(s *schema.ComputerSystem) error {
		var err error
		if asked, err = choose(host, action, force, s); err != nil || asked == "" {
			return err
		}
		return s.Reset(asked)
	})
	return string(asked), err
}

// choose finds the reset type for an action; "" where the host is as wanted.
func choose(host string, action Action, force bool, s *schema.ComputerSystem) (schema.ResetType, error) {
	off := s.PowerState == schema.OffPowerState
	var types []schema.ResetType // best first
	switch {
	case action == Reboot && off:
		return "", refuse(host, "it is powered off", "host power "+host+" on")
	case action == On && s.PowerState == schema.OnPowerState, action == Off && off:
		return "", nil
	case action == On:
		types = []schema.ResetType{schema.OnResetType, schema.ForceOnResetType}
	case action == Off && force:
		types = []schema.ResetType{schema.ForceOffResetType}
	case action == Off:
		types = []schema.ResetType{schema.GracefulShutdownResetType}
	case force:
		types = []schema.ResetType{schema.ForceRestartResetType, schema.PowerCycleResetType}
	default:
		types = []schema.ResetType{schema.GracefulRestartResetType}
	}
	for _, t := range types {
		if len(s.SupportedResetTypes) == 0 || slices.Contains(s.SupportedResetTypes, t) {
			return t, nil
		}
	}
	hint := "use the BMC's own console"
	if !force && action != On {
		hint = "run the command again with --force, which does not ask the operating system"
	}
	return "", refuse(host, fmt.Sprintf("its BMC offers no %s", types[0]), hint)
}

func refuse(host, why, hint string) error {
	return &fault.Error{Reason: fault.Refused, Op: "power", Subject: host, Err: errors.New(why), Hint: hint}
}

// with logs in, hands over the host's system and logs out. Who asks for it may go away:
// the session is ended all the same.
func (c *Client) with(ctx context.Context, host string, bmc jumphost.BMCHost, do func(*schema.ComputerSystem) error) (err error) {
	at, err := bmc.Redfish()
	if err != nil {
		return fmt.Errorf("host %s: %w", host, err)
	}
	if err := c.mayLogIn(host, bmc); err != nil {
		return err
	}
	client, err := c.httpClient(at.Endpoint, bmc)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	defer func() {
		if r := recover(); r != nil { // the library does not expect every answer
			err = errors.New("it gave an answer that cannot be understood")
		}
		err = c.explain(host, bmc, err)
	}()
	api, err := logIn(context.WithoutCancel(ctx), at.Endpoint, bmc, client)
	if err != nil {
		return err
	}
	defer api.Logout()
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := system(api, at.System)
	if err != nil {
		return err
	}
	return do(s)
}

// logIn opens a session, or where there are none tells the login with every request.
func logIn(ctx context.Context, endpoint string, bmc jumphost.BMCHost, client *http.Client) (*gofish.APIClient, error) {
	config := gofish.ClientConfig{Endpoint: endpoint, Username: bmc.Username, Password: bmc.Password, HTTPClient: client}
	api, err := gofish.ConnectContext(ctx, config)
	switch {
	case err == nil:
		session, err := api.GetSession()
		if err != nil || session.Token == "" {
			return nil, errors.New("it answered the login without a token")
		}
		return api, nil
	case !withoutSessions(err):
		return nil, err
	}
	config.BasicAuth = true
	return gofish.ConnectContext(ctx, config)
}

func withoutSessions(err error) bool {
	var answer *common.Error
	if errors.As(err, &answer) {
		switch answer.HTTPReturnedStatusCode {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return true
		}
	}
	return strings.Contains(err.Error(), "no target provided") // gofish's, where the ServiceRoot names no sessions
}

// system finds the host's ComputerSystem: the one at path, else the only one.
func system(api *gofish.APIClient, path string) (*schema.ComputerSystem, error) {
	if path == "" {
		all, err := common.GetCollection(api, systems)
		if err != nil {
			return nil, err
		}
		if len(all.ItemLinks) != 1 {
			return nil, &fault.Error{
				Reason: fault.InvalidInput, Op: "find", Subject: "the host's system", Err: fmt.Errorf("its BMC has %d, and the address names none", len(all.ItemLinks)),
				Hint: "add the path, such as /redfish/v1/Systems/1, to the address in the BareMetalHost's spec.bmc",
			}
		}
		path = all.ItemLinks[0]
	}
	return schema.GetComputerSystem(api, path)
}

func (c *Client) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// loginSum is of the account: two hosts can have one controller.
func loginSum(bmc jumphost.BMCHost) [sha256.Size]byte {
	at := bmc.Address
	if r, err := bmc.Redfish(); err == nil {
		at = r.Endpoint
	}
	return sha256.Sum256([]byte(at + "\x00" + bmc.Username + "\x00" + bmc.Password))
}

func (c *Client) refusals() *Refusals {
	if c.Refusals != nil {
		return c.Refusals
	}
	return &c.own
}

// mayLogIn keeps a login back that was refused before.
func (c *Client) mayLogIn(host string, bmc jumphost.BMCHost) error {
	r := c.refusals()
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.until[loginSum(bmc)]; !ok || !c.now().Before(until) {
		return nil
	}
	return &fault.Error{
		Reason: fault.Unauthorized, Op: "log in to", Subject: "the BMC of " + host, Err: errors.New("it refused this login before; it is not tried again yet, so that the account is not locked"),
		Hint: "correct the Secret that the BareMetalHost's spec.bmc names",
	}
}

func (c *Client) wasRefused(bmc jumphost.BMCHost) {
	r := c.refusals()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[[sha256.Size]byte]time.Time{}
	}
	maps.DeleteFunc(r.until, func(_ [sha256.Size]byte, until time.Time) bool { return !c.now().Before(until) })
	r.until[loginSum(bmc)] = c.now().Add(refusedFor)
}
