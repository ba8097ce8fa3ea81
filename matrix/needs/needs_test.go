package needs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

const manifest = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader, creationTimestamp: null}
rules:
- {apiGroups: [""], resources: [pods, nodes], verbs: [list, get, list]}
- {apiGroups: [apps, ""], resources: [daemonsets], verbs: ["*"], resourceNames: [a]}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node, namespace: site}
spec:
  template:
    spec:
      hostNetwork: true
      containers:
      - name: plugin
        image: registry.site/plugin:1
        imagePullPolicy: Always
        resources: {limits: {cpu: 1}}
        command: [/plugin]
        args: ["--v=4", "a, b"]
        lifecycle: {postStart: {exec: {command: [sh, -c, "a\nb"]}}}
        securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}}
        volumeMounts:
        - {mountPath: /dev, name: dev}
        - {mountPath: /csi, name: dev, readOnly: true}
      volumes:
      - {name: dev, hostPath: {path: /dev}}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: site}
stringData: {password: short}
`

func TestEverythingThatGivesPowerIsALine(t *testing.T) {
	objects := must.Have(needs.Decode([]byte(manifest)))(t)
	got := must.Have(needs.Of(objects...))(t)
	require.Equal(t, []needs.Object{
		{Name: "apps/v1 DaemonSet site/node", Lines: []string{
			`spec.template.spec.containers[plugin].args: [--v=4, "a, b"]`,
			`spec.template.spec.containers[plugin].command: [/plugin]`,
			`spec.template.spec.containers[plugin].lifecycle.postStart.exec.command: [sh, -c, 3 bytes of sha256 ` + sum("a\nb") + `]`,
			`spec.template.spec.containers[plugin].name: plugin`,
			`spec.template.spec.containers[plugin].securityContext.capabilities.add: [SYS_ADMIN]`,
			`spec.template.spec.containers[plugin].securityContext.privileged: true`,
			`spec.template.spec.containers[plugin].volumeMounts: {mountPath: /csi, name: dev, readOnly: true}`,
			`spec.template.spec.containers[plugin].volumeMounts: {mountPath: /dev, name: dev}`,
			`spec.template.spec.hostNetwork: true`,
			`spec.template.spec.volumes[dev].hostPath.path: /dev`,
			`spec.template.spec.volumes[dev].name: dev`,
		}},
		{Name: "rbac.authorization.k8s.io/v1 ClusterRole reader", Lines: []string{
			`may *: daemonsets in "", apps named a`,
			`may get, list: nodes, pods`,
			`may get: url /metrics`,
		}},
		{Name: "v1 Secret site/s", Lines: []string{`stringData.password: 5 bytes of sha256 ` + sum("short")}},
	}, got)
}

func sum(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func TestLinesAreNotMistakenForEachOther(t *testing.T) {
	seen := map[string]string{}
	for _, spec := range []string{
		`{args: [a, b]}`, `{args: ["a, b"]}`, `{args: "[a, b]"}`, `{args: ["a", "b", ""]}`, `{args: []}`, `{args: {}}`, `{args: ""}`,
		`{a: {b: c}}`, `{"a.b": c, x: y}`, `{list: [{k: "v, w: x"}]}`, `{list: [{k: v, w: x}]}`,
		`{containers: [{name: a, image: x, command: [a]}, {name: a, image: x, command: [b]}]}`,
		`{containers: [{name: a, image: x, command: [b]}, {name: a, image: x, command: [a]}]}`,
	} {
		objects, err := needs.Decode([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: " + spec))
		require.NoError(t, err, spec)
		got, err := needs.Of(objects...)
		require.NoError(t, err, spec)
		key := ""
		for _, l := range got[0].Lines {
			key += l + "\n"
		}
		require.Empty(t, seen[key], "%s and %s are both\n%s", spec, seen[key], key)
		seen[key] = spec
	}
}

func TestWhatCannotBeDescribedIsAnError(t *testing.T) {
	for _, bad := range []string{
		"kind: ClusterRole\nrules: {}", "kind: ClusterRole\nrules: [a]", "kind: Role\nrules: [{verbs: get}]", "kind: Role\nrules: [{verbs: [get], attributes: [x]}]",
		"kind: Pod\nspec: {a: [[b]]}", "kind: Pod\nspec: {a: [b, {c: d}]}", "kind: CustomResourceDefinition\nspec: {versions: [a]}",
	} {
		objects, err := needs.Decode([]byte(bad))
		if err == nil {
			_, err = needs.Of(objects...)
		}
		require.Error(t, err, bad)
	}
}

// The operator and kubectl read YAML 1.1, so the list has to be of that.
func TestManifestsAreReadLikeKubectlDoes(t *testing.T) {
	const three = "spec: {a: no, b: 2026-01-02, 1: {2: 3}}\n--- # the next\nspec: {a: 4503599627370496}\n--- {spec: on}\n"
	objects := must.Have(needs.Decode([]byte(three)))(t)
	first := map[string]any{"a": false, "b": "2026-01-02", "1": map[string]any{"2": float64(3)}}
	second := map[string]any{"a": float64(1 << 52)}
	require.Equal(t, []map[string]any{{"spec": first}, {"spec": second}, {"spec": true}}, objects)
}

func TestAListIsBoundToItsManifests(t *testing.T) {
	doc := must.Have(matrix.Parse("default", matrix.Default()))(t)
	id := must.Have(matrix.ParseReleaseID("cpi@1.33.1"))(t)
	name := "vsphere-cloud-controller-manager.yaml"
	require.Equal(t, fault.Corrupt, fault.ReasonOf(needs.Describe(doc, id, map[string][]byte{name: []byte(manifest)})))
	require.Equal(t, fault.NotFound, fault.ReasonOf(needs.Describe(doc, id, nil)))
	other := must.Have(matrix.ParseReleaseID("cpi@9.9.9"))(t)
	require.Equal(t, fault.NotFound, fault.ReasonOf(needs.Describe(doc, other, nil)))
}

// Releases that have an object just so share it; a new description of one takes
// nothing from the others; and what is written is read again.
func TestReleasesShareWhatTheyHaveAlike(t *testing.T) {
	doc := must.Have(matrix.Parse("default", matrix.Default()))(t)
	doc.Needs = nil
	id := func(text string) matrix.ReleaseID {
		return must.Have(matrix.ParseReleaseID(text))(t)
	}
	describe := func(text, content string) {
		for i := range doc.Releases {
			if doc.Releases[i].ReleaseID.String() == text {
				doc.Releases[i].Manifests = []matrix.Manifest{{Name: "m.yaml", URL: "https://h/m.yaml", Size: int64(len(content)), SHA256: sum(content)}}
			}
		}
		require.NoError(t, needs.Describe(doc, id(text), map[string][]byte{"m.yaml": []byte(content)}))
	}
	describe("cpi@1.33.0", manifest)
	describe("cpi@1.33.1", manifest)
	require.Len(t, doc.Needs, 3)
	describe("cpi@1.33.1", manifest+"automountServiceAccountToken: false\n")
	require.Len(t, doc.Needs, 4)
	describe("cpi@1.33.1", manifest)
	require.Len(t, doc.Needs, 3)
	data := must.Have(doc.Marshal())(t)
	again := must.Have(matrix.Parse("again", data))(t)
	require.Equal(t, doc.Needs, again.Needs)
	list, listed := again.NeedsOf(id("cpi@1.33.0"))
	require.True(t, listed)
	require.Len(t, list, 3)
	_, listed = again.NeedsOf(id("cpi@1.34.0"))
	require.False(t, listed)
}
