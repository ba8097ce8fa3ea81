package vdoctl

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
)

// writable refuses, before anything is asked, a file that is not written whatever the answers: in a
// folder that is not there, or in the place of one that has Secrets.
func (o *configureOptions) writable() error {
	if o.write == "" || o.write == "-" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(o.write)); errors.Is(err, fs.ErrNotExist) {
		return notWritten(o.write, err)
	}
	there, err := o.replaces()
	if err != nil {
		return err
	}
	items, err := itemsOf(there)
	if err != nil {
		return err
	}
	var secrets bytes.Buffer
	for _, u := range items {
		if u.GetKind() != "Secret" || u.GetAPIVersion() != "v1" {
			continue
		}
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&secrets, "---\n%s", data) // a buffer takes all
	}
	return o.keeps(&draft{namespace: o.cluster.namespace}, secrets.Bytes(), nil)
}

// sayWritten says where the file is and what has to be there besides, once it is written.
func (o *configureOptions) sayWritten(d *draft, operator bool) error {
	if o.write != "-" {
		if err := command.Say(o.err, "Written: %s", o.write); err != nil {
			return err
		}
	}
	if !operator {
		if err := command.Say(o.err, "Where the operator is not installed yet, `vdoctl deploy` comes before `kubectl apply`."); err != nil {
			return err
		}
	}
	return command.Say(o.err, "The account goes to the Secret %s in namespace %s, of type %s with the keys username and password: it is not in the file.",
		d.vcenter.Spec.Credentials, d.namespace, corev1.SecretTypeBasicAuth)
}
