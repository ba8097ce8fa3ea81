package vdoctl

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/installer"
)

// readFlag reads a file that a flag names.
func (a *app) readFlag(flag, name string, limit int64) ([]byte, error) {
	data, err := a.read(flag, name)
	if err == nil && int64(len(data)) > limit {
		err = &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: name, Err: fmt.Errorf("larger than %d bytes", limit), Hint: "check that " + flag + " names the right file"}
	}
	return data, err
}

// policy is whose signature counts; nil where that is nobody's, as was asked for.
func (o *deployOptions) policy() (*trust.Policy, error) {
	policy, err := o.Flags.Read(o.readFlag)
	switch {
	case err != nil:
		return nil, err
	case policy == nil && !o.unverified:
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "verify the bundle", Err: errNoTrust,
			Hint: "give the key that signed it with --key, or a policy with --policy; or say --without-verification"}
	case policy != nil && o.unverified:
		return nil, flags.Bad("--without-verification", "true", fmt.Errorf("--key or --policy is given as well"), "give one of them")
	}
	return policy, nil
}

// registry is what speaks to the mirror.
func (f *accessFlags) registry(a *app) (*remote.Client, error) {
	find, err := f.credentials(a)
	if err != nil {
		return nil, err
	}
	return remote.NewClient(remote.Options{Credentials: find, CAFile: f.caFile, PlainHTTP: f.plainHTTP, UserAgent: "vdoctl/" + a.build.Version})
}

func (f *accessFlags) credentials(a *app) (remote.CredentialFunc, error) {
	if f.authFile == "" {
		return remote.DefaultCredentials, nil
	}
	data, err := a.readFlag("--authfile", f.authFile, maxFile)
	if err != nil {
		return nil, err
	}
	return remote.ConfigCredentials(f.authFile, data)
}

// isFile tells a file or folder from a reference, as vdo-bundle does.
func isFile(src string) bool {
	return strings.HasSuffix(src, ".tar") || strings.HasSuffix(src, ".parts") || strings.HasPrefix(src, "oci:") ||
		strings.HasPrefix(src, "/") || strings.HasPrefix(src, "./") || strings.HasPrefix(src, "../")
}

// fromBundle opens a bundle, verifies it, and renders how its operator is installed.
func (o *deployOptions) fromBundle(ctx context.Context, src string) (*install.Manifests, []string, error) {
	policy, err := o.policy()
	if err != nil {
		return nil, nil, err
	}
	source, closes, err := o.open(src)
	if err != nil {
		return nil, nil, err
	}
	defer closes()
	b, err := installer.Open(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	var signers []string
	if policy != nil {
		if signers, err = b.Verify(ctx, policy, o.now()); err != nil {
			return nil, nil, err
		}
	}
	m, err := b.Manifests(ctx, o.to)
	return m, signers, err
}

// open opens the place of a bundle, and settles the mirror's repository.
func (o *deployOptions) open(src string) (installer.Source, func(), error) {
	if o.to.Repository != "" {
		ref, err := image.ParseHosted(o.to.Repository)
		if err != nil {
			return nil, nil, flags.Bad("--repository", o.to.Repository, err, "write REGISTRY/REPO")
		}
		o.to.Repository = ref.Repository()
	}
	if isFile(src) {
		if o.to.Repository == "" {
			return nil, nil, flags.Bad("--repository", "", fmt.Errorf("%s is not in a registry, so the mirror has to be named", src), "write REGISTRY/REPO as the bundle was pushed to")
		}
		l, err := installer.OpenLayout(strings.TrimPrefix(src, "oci:"))
		if err != nil {
			return nil, nil, err
		}
		return l, func() { _ = l.Close() }, nil
	}
	ref, err := image.ParseHosted(src)
	if err != nil {
		return nil, nil, flags.Bad("BUNDLE", src, err, "write REGISTRY/REPO:TAG, FILE.tar or oci:DIR")
	}
	if o.to.Repository == "" {
		o.to.Repository = ref.Repository()
	}
	c, err := o.registry(o.app)
	if err != nil {
		return nil, nil, err
	}
	return installer.Mirror(c, ref), func() { _ = c.Close() }, nil
}

// access are the ConfigMaps and the Secret that the operator looks for by their names, with
// what was used here.
func (o *deployOptions) access(ctx context.Context) ([]client.Object, error) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: o.cluster.namespace, Name: name}
	}
	var out []client.Object
	policy, err := o.Flags.Read(o.readFlag)
	if err != nil {
		return nil, err
	}
	if policy != nil {
		data, err := policy.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta(v1alpha1.DefaultTrustName), Data: map[string]string{v1alpha1.DefaultTrustPolicyKey: string(data)}})
	}
	if o.caFile != "" {
		data, err := o.readFlag("--ca-file", o.caFile, maxFile)
		if err != nil {
			return nil, err
		}
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta(v1alpha1.DefaultCAName), Data: map[string]string{v1alpha1.DefaultCAKey: string(data)}})
	}
	login, err := o.login(ctx)
	if login != nil {
		out = append(out, &corev1.Secret{ObjectMeta: meta(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: login}})
	}
	return out, err
}

// login is a docker configuration with the login of the mirror, nil where it has none.
func (o *deployOptions) login(ctx context.Context) ([]byte, error) {
	ref, err := image.ParseReference(o.to.Repository)
	if err != nil {
		return nil, err
	}
	find, err := o.credentials(o.app)
	if err != nil {
		return nil, err
	}
	c, err := find(ctx, ref.Host(), ref.Path())
	if err != nil || c == (remote.Credential{}) {
		return nil, err
	}
	entry := map[string]string{}
	for k, v := range map[string]string{"identitytoken": c.RefreshToken, "registrytoken": c.AccessToken} {
		if v != "" {
			entry[k] = v
		}
	}
	if c.Username != "" {
		entry["auth"] = base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
	}
	return json.Marshal(map[string]any{"auths": map[string]any{ref.Host(): entry}})
}
