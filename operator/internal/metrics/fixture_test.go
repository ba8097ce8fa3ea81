package metrics_test

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// started is when everything in the fixtures happened, and when promtool's time begins.
var started = time.Unix(0, 0)

const healthyDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func setReady(conds *[]metav1.Condition, status metav1.ConditionStatus, reason string) {
	set(conds, v1alpha1.ConditionReady, status, reason)
}

func set(conds *[]metav1.Condition, typ string, status metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(conds, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: "text", LastTransitionTime: metav1.NewTime(started)})
}

func healthyBundle(name string) *v1alpha1.DriverBundle {
	b := &v1alpha1.DriverBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.DriverBundleSpec{Reference: "registry.site.example/vdo/drivers:stable", Interval: metav1.Duration{Duration: 10 * time.Minute}},
	}
	b.Status = v1alpha1.DriverBundleStatus{
		ObservedGeneration: 1, Digest: healthyDigest, Repository: "registry.site.example/vdo/drivers", Tag: "stable", VerifiedBy: []string{"release"},
		Matrix: &v1alpha1.MatrixStatus{Serial: 7, Issued: metav1.NewTime(started), Expires: metav1.NewTime(started.AddDate(1, 0, 0)), Digest: healthyDigest},
		Releases: []v1alpha1.ReleaseStatus{
			{Driver: "csi", Version: "3.5.1"}, {Driver: "csi", Version: "3.5.0"}, {Driver: "cpi", Version: "1.33.1"}},
		HighestSerial: 9, AcceptedAt: &metav1.Time{Time: started},
	}
	setReady(&b.Status.Conditions, metav1.ConditionTrue, "Succeeded")
	set(&b.Status.Conditions, v1alpha1.ConditionVerified, metav1.ConditionTrue, "Succeeded")
	set(&b.Status.Conditions, v1alpha1.ConditionFresh, metav1.ConditionTrue, "Succeeded")
	return b
}

func healthyConfig(name string) *v1alpha1.VDOConfig {
	c := &v1alpha1.VDOConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "site"}, Interval: metav1.Duration{Duration: 5 * time.Minute}},
	}
	c.Status = v1alpha1.VDOConfigStatus{
		ObservedGeneration: 1, Kubernetes: "1.33.4", NodesReady: "3/3",
		Drivers: []v1alpha1.DriverStatus{
			{Driver: "cpi", Version: "1.33.1", Wanted: "1.33.1", Ready: true}, {Driver: "csi", Version: "3.5.1", Wanted: "3.5.1", Ready: true}},
	}
	for _, typ := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionCPI, v1alpha1.ConditionCSI, v1alpha1.ConditionCertificate, v1alpha1.ConditionUpgradeable} {
		set(&c.Status.Conditions, typ, metav1.ConditionTrue, "Succeeded")
	}
	return c
}

func healthyVCenter(name string) *v1alpha1.VsphereCloudConfig {
	v := &v1alpha1.VsphereCloudConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site.example", Port: 443, Credentials: "vc",
			Interval: metav1.Duration{Duration: 10 * time.Minute}},
	}
	v.Status = v1alpha1.VsphereCloudConfigStatus{
		ObservedGeneration: 1, Version: "8.0.3", Build: "24022515", User: "vdo@site.example", CheckedAt: &metav1.Time{Time: started},
	}
	setReady(&v.Status.Conditions, metav1.ConditionTrue, "Succeeded")
	return v
}
