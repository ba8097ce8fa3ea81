package site

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"go.yaml.in/yaml/v3"
	"gopkg.in/gcfg.v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// login is a vCenter and an account from a driver's configuration.
type login struct {
	server, username, password string
	port                       int
	insecure                   bool
	thumbprint                 string
	ca                         []byte
}

// cpiLogins reads the cloud provider's configuration like the cloud provider: YAML in a ConfigMap, credentials in the
// Secret that it names.
func (d *Drivers) cpiLogins(ctx context.Context) ([]login, error) {
	var cm corev1.ConfigMap
	key := client.ObjectKey{Namespace: "kube-system", Name: "vsphere-cloud-config"}
	if err := d.client.Get(ctx, key, &cm); err != nil {
		return nil, err
	}
	type section struct {
		Server          string `yaml:"server"`
		Port            int    `yaml:"port"`
		Insecure        bool   `yaml:"insecureFlag"`
		Thumbprint      string `yaml:"thumbprint"`
		CAFile          string `yaml:"caFile"`
		SecretName      string `yaml:"secretName"`
		SecretNamespace string `yaml:"secretNamespace"`
	}
	var config struct {
		Global  section            `yaml:"global"`
		VCenter map[string]section `yaml:"vcenter"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data["vsphere.conf"]), &config); err != nil {
		return nil, err
	}
	var out []login
	for _, vc := range config.VCenter {
		name := cmp.Or(vc.SecretName, config.Global.SecretName)
		namespace := cmp.Or(vc.SecretNamespace, config.Global.SecretNamespace)
		var secret corev1.Secret
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
		}
		l := login{
			server: vc.Server, port: vc.Port, insecure: vc.Insecure || config.Global.Insecure,
			thumbprint: cmp.Or(vc.Thumbprint, config.Global.Thumbprint),
			username:   string(secret.Data[vc.Server+".username"]), password: string(secret.Data[vc.Server+".password"]),
		}
		if l.username == "" {
			return nil, fmt.Errorf("credentials not found for server %s", vc.Server)
		}
		if file := cmp.Or(vc.CAFile, config.Global.CAFile); file != "" {
			l.ca = []byte(cm.Data[path.Base(file)])
		}
		out = append(out, l)
	}
	return out, nil
}

// csiConfig reads the storage driver's configuration, INI in a Secret, and returns the categories of its volumes'
// topology.
func (d *Drivers) csiConfig(ctx context.Context) (_ []login, categories []string, _ error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: csiNamespace, Name: "vsphere-config-secret"}
	if err := d.client.Get(ctx, key, &secret); err != nil {
		return nil, nil, err
	}
	type section struct {
		User, Password, Port, Thumbprint string
		Insecure                         bool   `gcfg:"insecure-flag"`
		CAFile                           string `gcfg:"ca-file"`
	}
	var config struct {
		Global        section
		VirtualCenter map[string]*section
		Labels        struct {
			Categories string `gcfg:"topology-categories"`
		}
	}
	err := gcfg.FatalOnly(gcfg.ReadStringInto(&config, string(secret.Data["csi-vsphere.conf"])))
	if err != nil {
		return nil, nil, err
	}
	var out []login
	of := config.Global
	for server, vc := range config.VirtualCenter {
		l := login{
			server: server, username: cmp.Or(vc.User, of.User), password: cmp.Or(vc.Password, of.Password),
			insecure: vc.Insecure || of.Insecure, thumbprint: cmp.Or(vc.Thumbprint, of.Thumbprint),
		}
		l.port, _ = strconv.Atoi(cmp.Or(vc.Port, of.Port, "443"))
		if file := cmp.Or(vc.CAFile, of.CAFile); file != "" {
			l.ca = secret.Data[path.Base(file)]
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, nil, errors.New("csi-vsphere.conf has no VirtualCenter section")
	}
	if list := config.Labels.Categories; list != "" {
		for c := range strings.SplitSeq(list, ",") {
			categories = append(categories, strings.TrimSpace(c))
		}
	}
	return out, categories, nil
}

// hasVM logs in, looks for a VM by its BIOS UUID, and logs out.
func (l login) hasVM(ctx context.Context, uuid string) (bool, error) {
	u := &url.URL{Scheme: "https", Host: fmt.Sprintf("%s:%d", l.server, max(l.port, 1)), Path: vim25.Path}
	sc := soap.NewClient(u, l.insecure)
	if l.ca != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(l.ca) {
			return false, errors.New("failed to load CA file")
		}
		sc.DefaultTransport().TLSClientConfig.RootCAs = pool
	}
	if l.thumbprint != "" {
		sc.SetThumbprint(u.Host, l.thumbprint)
	}
	vc, err := vim25.NewClient(ctx, sc)
	if err != nil {
		return false, err
	}
	c := &govmomi.Client{Client: vc, SessionManager: session.NewManager(vc)}
	if err := c.Login(ctx, url.UserPassword(l.username, l.password)); err != nil {
		return false, err
	}
	defer func() { _ = c.Logout(context.WithoutCancel(ctx)) }()
	vm, err := object.NewSearchIndex(vc).FindByUuid(ctx, nil, uuid, true, nil)
	return vm != nil, err
}
