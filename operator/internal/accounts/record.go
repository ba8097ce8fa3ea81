package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const recordKey = "record.json"

type record struct {
	Account string `json:"account"`
	Made    bool   `json:"made"` // created here; false if it existed before or is created by another program
	// Next replaces Account: a rotation is under way.
	Next     string `json:"next,omitempty"`
	NextMade bool   `json:"nextMade,omitempty"`
	// Templates are the hashes of the pods' configuration, by driver with Account, from before the Secret was changed.
	Templates map[string]string `json:"templates,omitempty"`
	// Run changes before a password is set. So one of two overlapping runs finds the record changed before it sets its
	// own.
	Run string `json:"run,omitempty"`
	// Printed is set if [Site.Output] received the Secret with the last account.
	Printed bool `json:"printed,omitempty"`
	// SecretMade is set if the Secret did not exist before.
	SecretMade bool                    `json:"secretMade,omitempty"`
	Places     map[string]*placeRecord `json:"places"`

	object *corev1.ConfigMap // nil if it does not exist
}

type placeRecord struct {
	// VCenter is the instance UUID: a VsphereCloudConfig may get another name.
	VCenter string `json:"vcenter,omitempty"`
	// Roles by name: nil if created here, not nil if privileges were added to an existing one.
	Roles map[string]*struct{} `json:"roles,omitempty"`
	// Permissions by account and object, with what the account had before; nil for nothing.
	Permissions map[string]map[string]*privileges.Permission `json:"permissions,omitempty"`
}

func (s *Site) recordName() string { return "vdo-account-" + s.Secret }

func (s *Site) readRecord(ctx context.Context) (*record, error) {
	r := &record{Places: map[string]*placeRecord{}}
	var m corev1.ConfigMap
	err := s.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.recordName()}, &m)
	if apierrors.IsNotFound(err) {
		return r, nil
	}
	op := "read ConfigMap " + s.Namespace + "/" + s.recordName()
	if err != nil {
		return nil, clusterstate.Fault(op, err)
	}
	err = json.Unmarshal([]byte(m.Data[recordKey]), r)
	for _, name := range []string{r.Account, r.Next} {
		if err == nil && name != "" {
			err = qualified(name)
		}
	}
	if err != nil {
		return nil, &fault.Error{Reason: fault.Corrupt, Op: op, Err: err,
			Hint: "it is the record of what was made in the vCenters; restore it, or delete it, and take away by hand what was made"}
	}
	r.object = &m
	if r.Places == nil {
		r.Places = map[string]*placeRecord{}
	}
	r.rename(s.Places)
	return r, nil
}

// rename gives each vCenter the present name of its VsphereCloudConfig.
func (r *record) rename(places []*Place) {
	for _, p := range places {
		for name, is := range r.Places {
			other := r.Places[p.Name]
			stays := func(o *Place) bool { return o.Name == name && o.ID == p.ID }
			if is.VCenter != p.ID || other != nil && other.VCenter == p.ID || slices.ContainsFunc(places, stays) {
				continue
			}
			if delete(r.Places, name); other != nil {
				r.Places[name] = other
			}
			r.Places[p.Name] = is
		}
	}
}

// writeRecord writes the record over the state that was read.
func (s *Site) writeRecord(ctx context.Context, r *record) error {
	maps.DeleteFunc(r.Places, func(_ string, p *placeRecord) bool {
		for account, of := range p.Permissions {
			if len(of) == 0 {
				delete(p.Permissions, account)
			}
		}
		return len(p.Roles)+len(p.Permissions) == 0
	})
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	m := r.object
	if m == nil {
		m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.recordName()}}
	}
	was := m.Data[recordKey]
	m.Data = map[string]string{recordKey: string(data)}
	switch {
	case r.object == nil:
		err = s.API.Create(ctx, m)
	case was != string(data):
		err = s.API.Update(ctx, m)
	}
	if err != nil {
		op := "write ConfigMap " + s.Namespace + "/" + s.recordName() + " (nothing is made before it is written)"
		return clusterstate.Fault(op, err)
	}
	r.object = m
	return nil
}

func (r *record) place(at *Place) *placeRecord {
	p := r.Places[at.Name]
	if p == nil {
		p = &placeRecord{}
		r.Places[at.Name] = p
	}
	p.VCenter = at.ID
	if p.Roles == nil {
		p.Roles = map[string]*struct{}{}
	}
	if p.Permissions == nil {
		p.Permissions = map[string]map[string]*privileges.Permission{}
	}
	return p
}

// permissionsOf returns the recorded permissions of an account in a vCenter, under any of its names.
func (r *record) permissionsOf(ctx context.Context, p *Place, account string) map[string]*privileges.Permission {
	out := map[string]*privileges.Permission{}
	for of, list := range r.place(p).Permissions {
		if p.same(ctx, of, account) {
			maps.Copy(out, list)
		}
	}
	return out
}

// intend records what a plan is about to change. The first entry has the state before, and stays.
func (p *placeRecord) intend(plan *privileges.Plan, mine map[string]*privileges.Permission) {
	for _, role := range plan.Roles {
		if _, known := p.Roles[role.Name]; !known && role.State == privileges.Create {
			p.Roles[role.Name] = nil
		} else if !known && role.State == privileges.Change {
			p.Roles[role.Name] = &struct{}{}
		}
	}
	for _, x := range plan.Permissions {
		if _, known := mine[x.ID]; !known && x.State != privileges.Keep {
			mine[x.ID] = x.Has
		}
	}
	p.Permissions[plan.Principal] = mine
}

// secret reads the Secret; nil if it does not exist.
func (s *Site) secret(ctx context.Context) (*corev1.Secret, error) {
	var out corev1.Secret
	err := s.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Secret}, &out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, clusterstate.Fault("read Secret "+s.Namespace+"/"+s.Secret, err)
	}
	return &out, nil
}

func loginOf(secret *corev1.Secret) Login {
	if secret == nil {
		return Login{}
	}
	return Login{Username: strings.TrimRight(string(secret.Data[corev1.BasicAuthUsernameKey]), "\r\n"), Password: vcenter.Password(strings.TrimRight(string(secret.Data[corev1.BasicAuthPasswordKey]), "\r\n"))}
}

// writable refuses a Secret that another program writes, before anything is created for it.
func (s *Site) writable(r *record, secret *corev1.Secret) error {
	by := ""
	if secret != nil {
		by = plan.AppliedBy(secret)
		if owner := metav1.GetControllerOf(secret); owner != nil {
			by = owner.Kind + " " + owner.Name
		}
	}
	switch {
	case s.Output != nil:
		return nil
	case by != "":
		return s.conflict(fmt.Errorf("%s writes it, and would undo the change", by), "print the Secret for its source: add --output-secret")
	case secret != nil && ptr.Deref(secret.Immutable, false):
		return s.conflict(errors.New("it is immutable"), "make it again without immutable: true, with the same data")
	case r.Printed:
		return s.conflict(errors.New("it was printed, and the cluster does not have it yet"),
			"put it there by its source, then run this again; or print another one: add --output-secret")
	}
	return nil
}

// writeSecret writes a login into the Secret, over the state that was read, or gives it to Output.
func (s *Site) writeSecret(ctx context.Context, r *record, secret *corev1.Secret, l Login) error {
	if secret == nil {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Secret}, Type: corev1.SecretTypeBasicAuth}
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[corev1.BasicAuthUsernameKey] = []byte(l.Username)
	secret.Data[corev1.BasicAuthPasswordKey] = []byte(l.Password)
	if delete(secret.Annotations, credentials.EndsAnnotation); s.days > 0 {
		ends := time.Now().UTC().AddDate(0, 0, s.days).Format(time.DateOnly)
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, credentials.EndsAnnotation, l.Username+" "+ends)
	}
	if s.Output != nil {
		return s.printSecret(ctx, r, secret, l)
	}
	write := func() error { return s.API.Update(ctx, secret) }
	if secret.UID == "" {
		write = func() error { return s.API.Create(ctx, secret) }
	}
	err := s.act(Change{Do: Set, Kind: "Secret", Name: s.Namespace + "/" + s.Secret, Account: l.Username}, write)
	if err != nil {
		op := "write Secret " + s.Namespace + "/" + s.Secret + " (the account is ready, and not yet in it)"
		return clusterstate.Fault(op, err)
	}
	return nil
}

func (s *Site) printSecret(ctx context.Context, r *record, secret *corev1.Secret, l Login) error {
	c := Change{Do: Print, Kind: "Secret", Name: s.Namespace + "/" + s.Secret, Account: l.Username,
		Note: "then run the same command without --output-secret once the cluster has it"}
	return s.act(c, func() error {
		r.Printed = true
		if err := s.writeRecord(ctx, r); err != nil {
			return err
		}
		return s.Output(secret)
	})
}

// arrived records that the cluster has the printed Secret.
func (s *Site) arrived(ctx context.Context, r *record) error {
	if !r.Printed || s.DryRun {
		return nil
	}
	r.Printed = false
	return s.writeRecord(ctx, r)
}

func (s *Site) read(ctx context.Context) (*record, *corev1.Secret, Login, error) {
	r, err := s.readRecord(ctx)
	if err != nil {
		return nil, nil, Login{}, err
	}
	secret, err := s.secret(ctx)
	now := loginOf(secret)
	if err == nil && now.Username != "" {
		err = qualified(now.Username)
	}
	return r, secret, now, err
}
