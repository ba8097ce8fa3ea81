package inspection

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// vcenter asks one vCenter, if it accepted the account and is not known to refuse it now.
func (i *Inspector) vcenter(ctx context.Context, namespace, name string, ask vcenter.Ask) preflight.VCenter {
	var vcc v1alpha1.VsphereCloudConfig
	if err := i.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &vcc); err != nil {
		return preflight.VCenter{Server: name, Unresolved: true, Err: unread(name, err)}
	}
	at := func(user string, err error) preflight.VCenter {
		return preflight.VCenter{Server: vcc.Spec.VcIP, Account: preflight.Account{Username: user}, Err: err}
	}
	read, err := credentials.Read(ctx, i.Reader, &vcc)
	if err != nil {
		return at(read.Username, err)
	}
	verified, ok := read.Verified(&vcc)
	if !ok {
		return at(read.Username, unverified(&vcc))
	}
	return i.ask(ctx, &vcc, verified, ask)
}

// ask logs in like all other code of the operator: one login at a time, and none with a refused password. Others may
// log in as soon as the vCenter has answered the login.
func (i *Inspector) ask(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig, account credentials.Verified, ask vcenter.Ask) preflight.VCenter {
	spec := &vcc.Spec
	q := logins.Question{
		Host: spec.VcIP, Port: int(spec.Port), Username: account.Username, Password: account.Password,
		Trust: logins.TrustOf(spec, account.CA), Asker: "inspection of " + string(vcc.UID),
	}
	known, leave, err := i.Logins.Enter(ctx, q, i.Now)
	if err != nil {
		return preflight.VCenter{Server: spec.VcIP, Account: preflight.Account{Username: account.Username}, Err: err}
	}
	if known != nil {
		leave()
		return preflight.VCenter{Server: spec.VcIP, Account: preflight.Account{Username: account.Username}, Err: known.Err}
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	target := vcenter.TargetOf(vcc, account.Username, account.Password, account.CA)
	target.Turn = func(ctx context.Context, login func() error) error {
		defer leave()
		_, err := i.Logins.Login(ctx, q, i.Now, login)
		return err
	}
	return i.Inspect(ctx, target, ask)
}

func unread(name string, err error) error {
	if apierrors.IsNotFound(err) {
		return render.NoVCenter("read", name)
	}
	return &fault.Error{Reason: fault.Internal, Op: "read", Subject: "VsphereCloudConfig " + name, Err: err}
}

// unverified returns why a vCenter is not asked: the fault of its own check.
func unverified(vcc *v1alpha1.VsphereCloudConfig) error {
	f := &fault.Error{Reason: fault.Incomplete, Op: "use", Subject: "VsphereCloudConfig " + vcc.Name,
		Err: errors.New("it has not been checked since its last change"), Hint: "see its conditions"}
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == vcc.Generation {
		f.Op = "check" // the fault's own is not known
		f.Reason, f.Err = fault.Reason(ready.Reason), errors.New(ready.Message)
		f.Hint = "correct what the VsphereCloudConfig's conditions name first"
		if f.Reason == fault.NotFound && len(vcc.Status.MissingDatacenters) > 0 {
			f.Op = "find datacenters in" // by which preflight knows the check
		}
	}
	return f
}
