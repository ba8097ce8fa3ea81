package redfish_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/redfish"
	bmc "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/redfish"
)

const canary = "canary-7d1f"

func options() bmc.Options { return bmc.Options{User: "admin", Password: canary} }

// login is that of a controller, whose certificate no authority of the client's issued.
func login(s *bmc.Server) jumphost.BMCHost {
	return jumphost.BMCHost{Address: "redfish+https://" + s.Host() + "/redfish/v1/Systems/1", Username: "admin", Password: canary, DisableCertificateVerification: true}
}

func certificateOf(s *bmc.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func TestPowerOverTLS(t *testing.T) {
	s := bmc.Start(t, options())
	c := &redfish.Client{CA: certificateOf(s)}
	host := login(s)
	host.DisableCertificateVerification = false
	for _, step := range []struct {
		action       redfish.Action
		force        bool
		asked, state string
	}{
		{redfish.Reboot, false, "GracefulRestart", "On"},
		{redfish.Reboot, true, "ForceRestart", "On"},
		{redfish.On, false, "", "On"},
		{redfish.Off, false, "GracefulShutdown", "Off"},
		{redfish.Off, true, "", "Off"},
		{redfish.On, false, "On", "On"},
		{redfish.Off, true, "ForceOff", "Off"},
	} {
		asked, err := c.Reset(t.Context(), "node01", host, step.action, step.force)
		require.NoError(t, err, "%v", step)
		require.Equal(t, step.asked, asked, "%v", step)
		state, err := c.Power(t.Context(), "node01", host)
		require.NoError(t, err)
		require.Equal(t, step.state, state, "%v", step)
	}
	_, err := c.Reset(t.Context(), "node01", host, redfish.Reboot, true)
	require.ErrorContains(t, err, "power node01: it is powered off")
	require.Equal(t, "host power node01 on", fault.HintOf(err))
	require.Equal(t, []string{"1 GracefulRestart", "1 ForceRestart", "1 GracefulShutdown", "1 On", "1 ForceOff"}, s.Resets())
	require.Zero(t, s.OpenSessions(), "every session is ended")
}

func TestControllersWithoutSessionsOrWithOneSystem(t *testing.T) {
	o := options()
	o.NoSessions, o.Systems, o.Resets = true, []string{"System.Embedded.1"}, []string{"On", "ForceOff", "ForceRestart"}
	s := bmc.Start(t, o)
	host := login(s)
	host.Address = "idrac-redfish://" + s.Host()
	c := &redfish.Client{}
	_, err := c.Reset(t.Context(), "node01", host, redfish.Reboot, false)
	require.ErrorContains(t, err, "power node01: its BMC offers no GracefulRestart")
	require.Contains(t, fault.HintOf(err), "--force")
	asked, err := c.Reset(t.Context(), "node01", host, redfish.Reboot, true)
	require.NoError(t, err)
	require.Equal(t, "ForceRestart", asked)
	require.Equal(t, []string{"System.Embedded.1 ForceRestart"}, s.Resets())

	two := options()
	two.Systems = []string{"1", "2"}
	s = bmc.Start(t, two)
	host = login(s)
	host.Address = "redfish://" + s.Host()
	_, err = c.Power(t.Context(), "node02", host)
	require.ErrorContains(t, err, "its BMC has 2, and the address names none")
	require.Zero(t, s.OpenSessions())
}

func TestARefusedLoginIsNotTriedAgain(t *testing.T) {
	s := bmc.Start(t, options())
	now := time.Now()
	c := &redfish.Client{Now: func() time.Time { return now }}
	host := login(s)
	host.Password = canary + "-wrong"
	_, err := c.Power(t.Context(), "node01", host)
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "speak with the BMC of node01: answers 401: Invalid username or password.")
	for range 5 {
		_, err = c.Reset(t.Context(), "node01", host, redfish.Reboot, false)
		require.ErrorContains(t, err, "refused this login before")
	}
	require.Equal(t, 1, s.Logins())
	now = now.Add(11 * time.Minute)
	_, err = c.Power(t.Context(), "node01", host)
	require.ErrorContains(t, err, "answers 401")
	_, err = c.Power(t.Context(), "node01", login(s))
	require.NoError(t, err, "another login is tried at once")
}

// A client for another proxy or authority does not try again what one before was refused.
func TestRefusalsOutliveClients(t *testing.T) {
	s := bmc.Start(t, options())
	var refusals redfish.Refusals
	host := login(s)
	host.Password = canary + "-wrong"
	for _, name := range []string{"node01", "node01", "renamed"} {
		_, err := (&redfish.Client{Refusals: &refusals}).Power(t.Context(), name, host)
		require.Equal(t, fault.Unauthorized, fault.ReasonOf(err), "%v", err)
	}
	require.Equal(t, 1, s.Logins())
}

func TestCertificatesAreChecked(t *testing.T) {
	s := bmc.Start(t, options())
	host := login(s)
	host.DisableCertificateVerification = false
	_, err := (&redfish.Client{}).Power(t.Context(), "node01", host)
	require.Equal(t, fault.CertificateInvalid, fault.ReasonOf(err), "%v", err)
	require.Contains(t, fault.HintOf(err), "disableCertificateVerification")
	require.Zero(t, s.Logins(), "nothing was sent to who could be anybody")

	_, err = (&redfish.Client{CA: []byte("no PEM")}).Power(t.Context(), "node01", host)
	require.ErrorContains(t, err, "there is no certificate in it")
}

// thief is a server that no login may reach.
func thief(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var reached atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	return s, &reached
}

func TestControllersThatAnswerOddly(t *testing.T) {
	elsewhere, reached := thief(t)
	text := func(body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, body) }
	}
	status := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); _, _ = io.WriteString(w, body) }
	}
	const sessions, system = "/redfish/v1/SessionService/Sessions", "/redfish/v1/Systems/1"
	reset := func(target string) func(http.ResponseWriter) {
		return text(`{"PowerState": "On", "Actions": {"#ComputerSystem.Reset": {"target": "` + target + `"}}}`)
	}
	for name, c := range map[string]struct {
		path   string
		answer func(http.ResponseWriter)
		want   string
		reason fault.Reason
	}{
		"no JSON":  {"/redfish/v1/", text("<html>welcome</html>"), "invalid character", fault.Corrupt},
		"null":     {"/redfish/v1/", text("null"), "", ""},
		"an array": {"/redfish/v1/", text("[]"), "cannot unmarshal", fault.Corrupt},
		"endless":  {"/redfish/v1/", text(`{"Name": "` + strings.Repeat("a", 2<<20) + `"}`), "too large", fault.Corrupt},
		"redirected away": {"/redfish/v1/", func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "leads to another address", fault.Corrupt},
		"redirected around": {"/redfish/v1/", func(w http.ResponseWriter) {
			w.Header().Set("Location", "/redfish/v1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "", fault.Corrupt},
		"busy":             {"/redfish/v1/", status(503, "later"), "answers 503: later", fault.Unreachable},
		"no token":         {sessions, status(201, "{}"), "without a token", fault.Corrupt},
		"forbidden":        {sessions, status(403, `{"error": {"code": "x", "message": "locked out"}}`), "answers 403: locked out", fault.Forbidden},
		"echoes":           {sessions, status(400, `you sent `+canary+strings.Repeat(canary, 100)), "answers 400: you sent ***", fault.Refused},
		"terminal codes":   {sessions, status(400, "\x1b[2J\x07gone\n\nnext"), "answers 400: ?[2J?gone next", fault.Refused},
		"system null":      {system, text("null"), "cannot be understood", fault.Corrupt},
		"system a number":  {system, text("7"), "cannot unmarshal", fault.Corrupt},
		"system elsewhere": {system, status(404, "{}"), "answers 404", fault.NotFound},
		"no action":        {system, text(`{"PowerState": "On"}`), "no target", fault.Corrupt},
		"target elsewhere": {system, reset(strings.Replace(elsewhere.URL, "http://", "@", 1) + "/"), "leads to another address", fault.Corrupt},
		"target a port":    {system, reset("1/"), "", fault.Corrupt},
		"target a domain":  {system, reset(".evil.test/"), "", fault.Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Instead = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == c.path && (c.path != sessions || r.Method == http.MethodPost) {
					c.answer(w)
					return true
				}
				return false
			}
			s := bmc.Start(t, o)
			_, err := (&redfish.Client{Timeout: time.Minute}).Reset(t.Context(), "node01", login(s), redfish.Reboot, false)
			if c.reason == "" {
				require.NoError(t, err, "a service root that says nothing leads to basic authentication")
				return
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			require.NotEmpty(t, fault.HintOf(err))
			require.NotContains(t, fault.Text(err), canary)
			require.NotContains(t, fault.Text(err), "token-")
			require.Less(t, len(err.Error()), 400)
			require.Empty(t, s.Resets())
			require.Zero(t, s.OpenSessions())
		})
	}
	require.Zero(t, reached.Load(), "nothing went elsewhere")
}

func TestASlowControllerIsGivenUp(t *testing.T) {
	t.Parallel()
	o := options()
	o.Instead = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/redfish/v1/Systems/1" {
			<-r.Context().Done()
			return true
		}
		return false
	}
	s := bmc.Start(t, o)
	_, err := (&redfish.Client{Timeout: 5 * time.Second}).Power(t.Context(), "node01", login(s))
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "speak with the BMC of node01: does not answer in time")
	require.Zero(t, s.OpenSessions(), "the session is ended all the same")

	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	host := login(s)
	host.Address = "redfish://" + gone.Addr().String()
	_, err = (&redfish.Client{}).Power(t.Context(), "node01", host)
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
}

func TestWhoLeavesEndsTheSession(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := options()
	o.Instead = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			cancel()
		}
		return false
	}
	s := bmc.Start(t, o)
	_, err := (&redfish.Client{}).Reset(ctx, "node01", login(s), redfish.Reboot, false)
	require.Equal(t, fault.Interrupted, fault.ReasonOf(err), "%v", err)
	require.Empty(t, s.Resets())
	require.Zero(t, s.OpenSessions())
}

// proxy is an HTTP proxy that leads every CONNECT to one address.
func proxy(t *testing.T, to, wantLogin string) (*url.URL, *atomic.Int32) {
	t.Helper()
	var connects atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != wantLogin {
			http.Error(w, "no", http.StatusProxyAuthRequired)
			return
		}
		connects.Add(1)
		there, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = fmt.Fprint(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, bufio.NewReader(here)); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u, &connects
}

func TestTheProxyIsUsed(t *testing.T) {
	s := bmc.Start(t, options())
	// base64 of site:canary-7d1f-proxy
	through, connects := proxy(t, s.Host(), "Basic c2l0ZTpjYW5hcnktN2QxZi1wcm94eQ==")
	through.User = url.UserPassword("site", canary+"-proxy")
	host := login(s)
	host.Address = "redfish://bmc-of-node01.invalid/redfish/v1/Systems/1" // nobody but the proxy knows it
	state, err := (&redfish.Client{Proxy: through}).Power(t.Context(), "node01", host)
	require.NoError(t, err)
	require.Equal(t, "On", state)
	require.Positive(t, connects.Load())

	through.User = url.UserPassword("site", canary+"-wrong")
	_, err = (&redfish.Client{Proxy: through}).Power(t.Context(), "node01", host)
	require.Error(t, err)
	require.NotContains(t, fault.Text(err), canary)
}
