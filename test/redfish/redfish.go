// Package redfish is a management controller (BMC) for tests: an HTTP server that speaks
// these resources of DMTF's Redfish specification (DSP0266 1.15, schemas of DSP8010), as a
// controller with one or several systems does:
//
//	GET    /redfish/v1/                                     ServiceRoot, without a login
//	POST   /redfish/v1/SessionService/Sessions              Session: X-Auth-Token and Location
//	DELETE /redfish/v1/SessionService/Sessions/ID
//	GET    /redfish/v1/Systems                              ComputerSystemCollection
//	GET    /redfish/v1/Systems/ID                           ComputerSystem, with an ETag
//	POST   /redfish/v1/Systems/ID/Actions/ComputerSystem.Reset
//
// A session's token or HTTP basic authentication is asked for wherever the specification
// asks for one; errors have the specification's form. What is not one of these is 404.
package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Options say what the controller has.
type Options struct {
	User, Password string
	Systems        []string // ids; none: "1"
	Resets         []string // reset types that are allowed; none: the usual
	NoSessions     bool     // basic authentication alone
	PlainHTTP      bool
	// Instead answers in place of the controller where it returns true.
	Instead func(w http.ResponseWriter, r *http.Request) bool
}

// Server is a running controller.
type Server struct {
	*httptest.Server

	o        Options
	mu       sync.Mutex
	power    map[string]string
	resets   []string
	sessions map[string]string // id → token
	made     int
	logins   int
}

const prefix = "/redfish/v1/"

// Start starts a controller, which ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if len(o.Systems) == 0 {
		o.Systems = []string{"1"}
	}
	if len(o.Resets) == 0 {
		o.Resets = []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart"}
	}
	s := &Server{o: o, power: map[string]string{}, sessions: map[string]string{}}
	for _, id := range o.Systems {
		s.power[id] = "On"
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	if o.PlainHTTP {
		s.Server.Start()
	} else {
		s.StartTLS()
	}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Host is where it listens: HOST:PORT.
func (s *Server) Host() string { return s.Listener.Addr().String() }

// Resets returns what was asked for: "1 GracefulRestart".
func (s *Server) Resets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resets)
}

// OpenSessions returns how many sessions nobody ended.
func (s *Server) OpenSessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Logins returns how often somebody tried to log in.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// SetPassword changes the password of the account.
func (s *Server) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Password = password
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.o.Instead != nil && s.o.Instead(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, prefix)
	system, rest, _ := strings.Cut(strings.TrimPrefix(path, "Systems/"), "/")
	isSystem := strings.HasPrefix(path, "Systems/") && s.power[system] != ""
	switch {
	case r.URL.Path == prefix && r.Method == http.MethodGet:
		s.root(w)
	case path == "SessionService/Sessions" && r.Method == http.MethodPost && !s.o.NoSessions:
		s.logIn(w, r)
	case !s.knows(r):
		fail(w, http.StatusUnauthorized, "NoValidSession", "There is no valid session established with the implementation.")
	case strings.HasPrefix(path, "SessionService/Sessions/") && r.Method == http.MethodDelete:
		delete(s.sessions, strings.TrimPrefix(path, "SessionService/Sessions/"))
		w.WriteHeader(http.StatusNoContent)
	case path == "Systems" && r.Method == http.MethodGet:
		s.collection(w)
	case isSystem && rest == "" && r.Method == http.MethodGet:
		s.system(w, system)
	case isSystem && rest == "Actions/ComputerSystem.Reset" && r.Method == http.MethodPost:
		s.reset(w, r, system)
	default:
		fail(w, http.StatusNotFound, "ResourceMissingAtURI", fmt.Sprintf("The resource at the URI %s was not found.", r.URL.Path))
	}
}

// knows tells whether a request has a session's token, or the login.
func (s *Server) knows(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		for _, t := range s.sessions {
			if t == token {
				return true
			}
		}
		return false
	}
	user, password, ok := r.BasicAuth()
	if ok {
		s.logins++
	}
	return ok && user == s.o.User && password == s.o.Password
}

func (s *Server) root(w http.ResponseWriter) {
	root := map[string]any{
		"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "@odata.id": prefix, "Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.15.0",
		"Systems": map[string]string{"@odata.id": prefix + "Systems"}, "Links": map[string]any{},
	}
	if !s.o.NoSessions {
		root["SessionService"] = map[string]string{"@odata.id": prefix + "SessionService"}
		root["Links"] = map[string]any{"Sessions": map[string]string{"@odata.id": prefix + "SessionService/Sessions"}}
	}
	answer(w, http.StatusOK, root)
}

func (s *Server) logIn(w http.ResponseWriter, r *http.Request) {
	s.logins++
	var login struct{ UserName, Password string }
	if err := json.NewDecoder(r.Body).Decode(&login); err != nil {
		fail(w, http.StatusBadRequest, "MalformedJSON", "The request body submitted was malformed JSON.")
		return
	}
	if login.UserName != s.o.User || login.Password != s.o.Password {
		fail(w, http.StatusUnauthorized, "ResourceAtUriUnauthorized", "Invalid username or password.")
		return
	}
	s.made++
	id := fmt.Sprint(s.made)
	s.sessions[id] = "token-" + id + "-of-" + s.Host()
	w.Header().Set("X-Auth-Token", s.sessions[id])
	w.Header().Set("Location", prefix+"SessionService/Sessions/"+id)
	answer(w, http.StatusCreated, map[string]string{"@odata.type": "#Session.v1_6_0.Session", "@odata.id": prefix + "SessionService/Sessions/" + id, "Id": id, "Name": "User Session", "UserName": login.UserName})
}

func (s *Server) collection(w http.ResponseWriter) {
	members := []map[string]string{}
	for _, id := range s.o.Systems {
		members = append(members, map[string]string{"@odata.id": prefix + "Systems/" + id})
	}
	answer(w, http.StatusOK, map[string]any{
		"@odata.type": "#ComputerSystemCollection.ComputerSystemCollection", "@odata.id": prefix + "Systems", "Name": "Computer Systems",
		"Members": members, "Members@odata.count": len(members),
	})
}

func etag(power string) string { return `W/"` + power + `"` }

func (s *Server) system(w http.ResponseWriter, id string) {
	at := prefix + "Systems/" + id
	w.Header().Set("ETag", etag(s.power[id]))
	answer(w, http.StatusOK, map[string]any{
		"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "@odata.id": at, "Id": id, "Name": "System " + id, "PowerState": s.power[id],
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": at + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": s.o.Resets,
		}},
	})
}

func (s *Server) reset(w http.ResponseWriter, r *http.Request, id string) {
	var asked struct{ ResetType string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		fail(w, http.StatusBadRequest, "MalformedJSON", "The request body submitted was malformed JSON.")
		return
	}
	if !slices.Contains(s.o.Resets, asked.ResetType) {
		fail(w, http.StatusBadRequest, "ActionParameterNotSupported", "The parameter ResetType is not supported.")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != etag(s.power[id]) {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag supplied did not match the current resource.")
		return
	}
	s.resets = append(s.resets, id+" "+asked.ResetType)
	switch asked.ResetType {
	case "ForceOff", "GracefulShutdown":
		s.power[id] = "Off"
	default:
		s.power[id] = "On"
	}
	w.WriteHeader(http.StatusNoContent)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // what it is asked to write can be
}

func fail(w http.ResponseWriter, status int, id, message string) {
	answer(w, status, map[string]any{"error": map[string]any{
		"code": "Base.1.15.GeneralError", "message": "A general error has occurred. See ExtendedInfo for more information.",
		"@Message.ExtendedInfo": []map[string]string{{"@odata.type": "#Message.v1_1_2.Message", "MessageId": "Base.1.15." + id, "Message": message}},
	}})
}
