package vdoctl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsWrongWithASiteFileIsSaidWithItsLine(t *testing.T) {
	const config = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfig\n"
	for text, want := range map[string]string{
		config + "spec:\n  suspend: maybe\n":                                                                `document 1: line 4: spec.suspend: expected true or false, got the text "maybe"`,
		"# none\n---\n" + config + "---\n" + config + "spec: {drivers: csi}\n":                              `document 3: line 8: spec.drivers: expected a list, got the text "csi"`,
		config + "spec:\n  drivers:\n  - {driver: csi}\n  - {driver: 7}\n":                                  `document 1: line 6: spec.drivers.driver: expected text, in quotes, got 7`,
		config + "spec: csi\n":                                                                              `document 1: line 3: spec: expected a mapping of keys, got text`,
		config + "metadata: {name: a, labels: {a: b,\n  c: true}}\n":                                        `document 1: line 4: metadata.labels: expected text, in quotes, got true or false`,
		config + "spec:\r\n  drivers:\r\n  - {driver: csi}\r\n  - {driver: a, to: b}\r\n":                   `document 1: line 6: unknown field "spec.drivers[1].to"`,
		config + "spec:\n  suspend: true\n  suspend: false\n":                                               `document 1: line 5: the key "suspend" is there twice`,
		config + "\tspec: {}\n":                                                                             `document 1: line 3: found a tab character that violates indentation`,
		"---\n- a\n":                                                                                        `document 1: line 2: it is a list, not a resource with apiVersion and kind`,
		`{"apiVersion": "vdo.vmware.com/v1alpha1", "kind": "VDOConfig",` + "\n" + `"spec": {"suspend": 1}}`: `document 1: line 2: spec.suspend: expected true or false, got 1`,
		"apiVersion: v1\nkind: Secret\nstringData: {username: a,\n password: 4711}\n":                       `document 1: line 4: stringData: expected text, in quotes, got a number`,
		"apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nspec:\n  vcIp: vc\n  port: \"443\"\n  datacenters: [/a]\n": `document 1: line 5: spec.port: expected a whole number, got the text "443"`,
	} {
		_, err := parseSite("site.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "Go ", text)
		require.NotContains(t, err.Error(), "4711", "a password")
	}
}
