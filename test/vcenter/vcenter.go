// Package vcenter is a vCenter for tests and for the demo: govmomi's simulator in process, with a certificate of its
// own CA and checked accounts.
//
// Its inventory has two datacenters in folders and one at the root,
//
//	/site/prod/east    /site/west    /lab
//
// each with a cluster, hosts and VMs, to test names in folders, several datacenters and wrong names. The accounts are
// [Admin], [Reader] (sees nothing), [Stranger] (has no role), [Administrator] (also changes accounts), and those
// created in it. It refuses any other as InvalidLogin.
package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/vmware/govmomi/cns/simulator" // cloud native storage
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	_ "github.com/vmware/govmomi/pbm/simulator" // storage policies
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator" // tags over REST
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// Account is a user name and its password.
type Account struct{ Username, Password string }

// The accounts that the vCenter knows.
var (
	Admin    = Account{"vdo@vsphere.local", "Right-Pass word#1"}
	Reader   = Account{"reader@vsphere.local", "Reader-Pass#1"}     // logs in, has no privilege anywhere
	Stranger = Account{"stranger@vsphere.local", "Stranger-Pass#1"} // right password, but no role: the login itself is denied
)

// Options of a vCenter.
type Options struct {
	Version  string   // reported version; default 8.0.3
	ESXi     bool     // be an ESXi host rather than a vCenter
	Names    []string // names and addresses in the certificate; default localhost, 127.0.0.1, ::1
	Expired  bool     // serve an expired certificate
	Machines int      // VMs of each datacenter's cluster; default 2
}

// VCenter is a running vCenter.
type VCenter struct {
	Host   string // 127.0.0.1
	Port   int
	CA     []byte // PEM of its certificate's CA
	SHA1   string // thumbprint of the certificate, AA:BB:…
	SHA256 string
	opts   Options
	model  *simulator.Model
	server *simulator.Server
	mu     sync.Mutex
	// serving is the certificate for new connections.
	serving pki.Authority
	logins  map[string]int
	// passwords are the current ones, by account. refused counts wrong ones, accepted lists the right ones that
	// logged in.
	passwords map[string]string
	refused   map[string]int
	accepted  map[string][]string
	// plain are accounts created in the vCenter: without a permission they have no role. ssoSessions counts the
	// sessions that may change accounts.
	plain       map[string]bool
	ssoSessions int
}

// VM is a virtual machine of the inventory.
type VM struct {
	Name string
	UUID string // BIOS UUID, lower case
	Path string // inventory path
}

// making is locked while an inventory is created: each inventory writes the simulator's package variable for the
// licence, and its hosts read it.
var making sync.Mutex

// policies is locked while a vCenter starts and while one serves storage policies. Each vCenter writes the default
// policies, variables of the simulator's package, as it starts.
var policies sync.Mutex

// Start starts a vCenter that ends with the test.
func Start(t testing.TB, o Options) *VCenter {
	t.Helper()
	v, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// Run starts a vCenter; the caller closes it.
func Run(o Options) (*VCenter, error) {
	o = o.withDefaults()
	v := &VCenter{
		opts: o, logins: map[string]int{}, model: model(o),
		passwords: map[string]string{}, refused: map[string]int{}, accepted: map[string][]string{}, plain: map[string]bool{},
	}
	if _, err := v.Reissue(); err != nil {
		return nil, err
	}
	for _, a := range []Account{Admin, Administrator, Reader, Stranger} {
		v.passwords[a.Username] = a.Password
	}
	making.Lock()
	err := v.model.Create()
	making.Unlock()
	if err != nil {
		return nil, fmt.Errorf("make the inventory: %w", err)
	}
	if err := v.arrange(o); err != nil {
		v.model.Remove()
		return nil, err
	}
	v.listen()
	return v, nil
}

func (o Options) withDefaults() Options {
	o.Version, o.Machines = cmp.Or(o.Version, "8.0.3"), cmp.Or(o.Machines, 2)
	if o.Names == nil {
		o.Names = []string{"localhost", "127.0.0.1", "::1"}
	}
	return o
}

func model(o Options) *simulator.Model {
	if o.ESXi {
		return simulator.ESX()
	}
	m := simulator.VPX()
	m.Datacenter, m.Host, m.ClusterHost, m.Machine, m.Portgroup = 3, 0, 2, o.Machines, 0
	m.ServiceContent.About.InstanceUuid = string(uuid.NewUUID()) // all simulators have the same one
	m.ServiceContent.About.Version = o.Version
	m.ServiceContent.About.ApiVersion = o.Version + ".0"
	return m
}

// arrange moves the datacenters into folders, and sets the rules of the accounts.
func (v *VCenter) arrange(o Options) error {
	if !o.ESXi {
		if err := v.folders(context.Background()); err != nil {
			return fmt.Errorf("arrange the datacenters: %w", err)
		}
	}
	registry := v.model.Map()
	registry.SessionManager().ValidLogin = v.valid
	registry.Handler = v.authorize
	if a, ok := registry.Get(types.ManagedObjectReference{Type: "AuthorizationManager", Value: "AuthorizationManager"}).(*simulator.AuthorizationManager); ok {
		registry.Put(&authorization{a, v})
	}
	return nil
}

func (v *VCenter) folders(ctx context.Context) error {
	c := v.client()
	root := object.NewRootFolder(c)
	site, err := root.CreateFolder(ctx, "site")
	if err != nil {
		return err
	}
	prod, err := site.CreateFolder(ctx, "prod")
	if err != nil {
		return err
	}
	for _, move := range []struct {
		from, to string
		into     *object.Folder
	}{{"DC0", "east", prod}, {"DC1", "west", site}, {"DC2", "lab", nil}} {
		if err := place(ctx, c, move.from, move.to, move.into); err != nil {
			return fmt.Errorf("%s: %w", move.from, err)
		}
	}
	return nil
}

// place renames a datacenter and moves it into a folder.
func place(ctx context.Context, c *vim25.Client, from, to string, into *object.Folder) error {
	dc, err := find.NewFinder(c).Datacenter(ctx, "/"+from)
	if err != nil {
		return err
	}
	task, err := dc.Rename(ctx, to)
	if err != nil {
		return err
	}
	if err := task.Wait(ctx); err != nil || into == nil {
		return err
	}
	if task, err = into.MoveInto(ctx, []types.ManagedObjectReference{dc.Reference()}); err != nil {
		return err
	}
	return task.Wait(ctx)
}

func (v *VCenter) listen() {
	s := v.model.Service
	own := &tls.Config{Certificates: []tls.Certificate{v.serving.TLS()}, MinVersion: tls.VersionTLS12}
	s.TLS = own.Clone()
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		now := own.Clone()
		now.Certificates, now.ClientAuth = []tls.Certificate{v.serving.TLS()}, tls.RequestClientCert
		return now, nil
	}
	s.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(Admin.Username, Admin.Password)}
	s.RegisterEndpoints = true
	s.ServeMux = http.NewServeMux()
	s.ServeMux.HandleFunc(tokenPath, v.tokens)
	s.ServeMux.HandleFunc("POST "+pbm.Path, func(w http.ResponseWriter, r *http.Request) {
		policies.Lock()
		defer policies.Unlock()
		s.ServeSDK(w, r)
	})
	policies.Lock()
	v.server = s.NewServer()
	policies.Unlock()
	if !v.opts.ESXi {
		v.simulateDirectory()
	}
	host, port, _ := net.SplitHostPort(v.server.URL.Host)
	v.Host = host
	v.Port, _ = strconv.Atoi(port)
}

// Close ends the vCenter, whatever its clients do. The simulator's own Close waits for all requests, and a client
// that waits for updates never ends its request.
func (v *VCenter) Close() {
	_ = v.server.Config.Close()
	v.model.Remove()
}

// Address returns host:port.
func (v *VCenter) Address() string { return net.JoinHostPort(v.Host, strconv.Itoa(v.Port)) }

// valid reports whether a login's password is right, and counts it.
func (v *VCenter) valid(req *types.Login) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logins[req.UserName]++
	if right, known := v.passwords[req.UserName]; !known || req.Password != right {
		v.refused[req.UserName]++
		return false
	}
	if !slices.Contains(v.accepted[req.UserName], req.Password) {
		v.accepted[req.UserName] = append(v.accepted[req.UserName], req.Password)
	}
	return true
}

// Reissue replaces the certificate by one of another CA, and returns that CA. Only new connections get it.
func (v *VCenter) Reissue() (ca []byte, err error) {
	authority, err := pki.Authority{}.New(pki.Spec{Name: "vcsim CA", CA: true})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	spec := pki.Spec{
		Name: "vcsim", DNS: v.opts.Names, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	if v.opts.Expired {
		spec.NotAfter = now.Add(-time.Hour)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.serving, err = authority.New(spec); err != nil {
		return nil, err
	}
	cert := v.serving.Certificate
	v.CA, v.SHA256, v.SHA1 = authority.PEM(), soap.ThumbprintSHA256(cert), soap.ThumbprintSHA1(cert)
	return v.CA, nil
}

// SetVersion makes the vCenter report another version, as after an upgrade.
func (v *VCenter) SetVersion(version string) {
	registry := v.model.Map()
	instance := registry.Get(vim25.ServiceInstance).(*simulator.ServiceInstance) //nolint:forcetypeassert // it is that
	registry.WithLock(simulator.NewContext(), instance, func() {
		instance.Content.About.Version, instance.Content.About.ApiVersion = version, version+".0"
	})
}

// SetPassword changes the password of an account.
func (v *VCenter) SetPassword(username, password string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.passwords[username] = password
}

// Refused counts the logins of an account with a wrong password.
func (v *VCenter) Refused(username string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.refused[username]
}

// Accepted returns the passwords that an account has logged in with.
func (v *VCenter) Accepted(username string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.accepted[username])
}

// authorize denies calls that an account lacks permission for.
func (v *VCenter) authorize(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	denied := &types.NoPermission{Object: &m.This, PrivilegeId: "System.View"}
	if req, ok := m.Body.(*types.Login); ok && (req.UserName == Stranger.Username || v.withoutRole(req.UserName)) && v.valid(req) {
		return nil, denied
	}
	if ctx.Session != nil && ctx.Session.UserName == Reader.Username && m.Name != "Logout" {
		return nil, denied
	}
	return nil, v.lacks(ctx, m)
}

// Logins counts the login attempts of an account.
func (v *VCenter) Logins(username string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.logins[username]
}

// Break makes each call of a method fail with a fault, and its message, if any: one says that an account is locked.
func (v *VCenter) Break(method string, f types.BaseMethodFault, message ...string) {
	text := cmp.Or(strings.Join(message, ""), fmt.Sprintf("%T", f))
	v.model.Service.AddFaultRule(&simulator.FaultInjectionRule{
		MethodName: method, ObjectType: "*", ObjectName: "*", Probability: 1, Enabled: true,
		FaultType: simulator.FaultTypeCustom, Fault: f, Message: text})
}

// Mend removes the faults of Break.
func (v *VCenter) Mend() { v.model.Service.ClearFaultRules() }

// client returns an in-process client, which needs no login.
func (v *VCenter) client() *vim25.Client {
	return &vim25.Client{RoundTripper: v.model.Service, ServiceContent: v.content()}
}

func (v *VCenter) content() types.ServiceContent {
	return v.model.Map().Get(vim25.ServiceInstance).(*simulator.ServiceInstance).Content
}

// SessionCount returns the number of open sessions.
func (v *VCenter) SessionCount(ctx context.Context) (int, error) {
	var m mo.SessionManager
	c := v.client()
	if err := property.DefaultCollector(c).RetrieveOne(ctx, *c.ServiceContent.SessionManager, []string{"sessionList"}, &m); err != nil {
		return 0, err
	}
	return len(m.SessionList), nil
}

// VMs lists the virtual machines of a datacenter, named by its path.
func (v *VCenter) VMs(ctx context.Context, datacenter string) ([]VM, error) {
	list, err := find.NewFinder(v.client()).VirtualMachineList(ctx, datacenter+"/vm/...")
	if err != nil {
		return nil, err
	}
	vms := make([]VM, len(list))
	for i, vm := range list {
		vms[i] = VM{Name: vm.Name(), UUID: vm.UUID(ctx), Path: vm.InventoryPath}
	}
	return vms, nil
}
