package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/config"
)

var wanted = []config.Setting{
	{Key: "topologyManagerPolicy", Value: "restricted"},
	{Key: "topologyManagerPolicyOptions", Value: map[string]string{"prefer-closest-numa-nodes": "true"}},
	{Key: "reservedSystemCPUs", Value: "0,64"},
}

// patches are configurations before and after, and what the lines of both say.
var patches = []struct{ name, before, after string }{
	{
		"nothing is set",
		`# managed by the cloud
kind: KubeletConfiguration
# the DNS server
clusterDNS: [10.0.0.10]
`,
		`# managed by the cloud
kind: KubeletConfiguration
# the DNS server
clusterDNS: [10.0.0.10]
topologyManagerPolicy: restricted
topologyManagerPolicyOptions:
  prefer-closest-numa-nodes: "true"
reservedSystemCPUs: 0,64
`,
	},
	{
		"all is set to something else, with comments",
		`topologyManagerPolicy: none # was the default
topologyManagerPolicyOptions:
    # two sockets
    align-by-socket: "false"   # beta
    prefer-closest-numa-nodes: 'false' # no
reservedSystemCPUs: "0" # the first
evictionHard: {memory.available: 100Mi}
`,
		`topologyManagerPolicy: restricted # was the default
topologyManagerPolicyOptions:
    # two sockets
    align-by-socket: "false"   # beta
    prefer-closest-numa-nodes: "true" # no
reservedSystemCPUs: 0,64 # the first
evictionHard: {memory.available: 100Mi}
`,
	},
	{
		"an option beside, in one line, and a value that is empty",
		`topologyManagerPolicyOptions: {max-allowable-numa-nodes: "16"} # SNC
topologyManagerPolicy:
kubeReserved:
  cpu: 500m
`,
		`topologyManagerPolicyOptions: # SNC
  max-allowable-numa-nodes: "16"
  prefer-closest-numa-nodes: "true"
topologyManagerPolicy: restricted
kubeReserved:
  cpu: 500m
reservedSystemCPUs: 0,64
`,
	},
	{
		"an option beside, in lines; no newline at the end",
		"topologyManagerPolicyOptions:\n  max-allowable-numa-nodes: \"16\"\n" +
			"staticPodPath: /etc/kubernetes/manifests",
		"topologyManagerPolicyOptions:\n  prefer-closest-numa-nodes: \"true\"\n" +
			"  max-allowable-numa-nodes: \"16\"\nstaticPodPath: /etc/kubernetes/manifests\n" +
			"topologyManagerPolicy: restricted\nreservedSystemCPUs: 0,64\n",
	},
	{
		"JSON",
		"{\n    \"kind\": \"KubeletConfiguration\",\n    \"maxPods\": 110,\n    \"topologyManagerPolicy\": " +
			"\"best-effort\",\n    \"evictionHard\": {\n        \"memory.available\": \"100Mi\"\n    },\n" +
			"    \"clusterDNS\": [\n        \"10.0.0.10\"\n    ],\n    \"serializeImagePulls\": false\n}\n",
		"{\n    \"kind\": \"KubeletConfiguration\",\n    \"maxPods\": 110,\n    \"topologyManagerPolicy\": " +
			"\"restricted\",\n    \"evictionHard\": {\n        \"memory.available\": \"100Mi\"\n    },\n" +
			"    \"clusterDNS\": [\n        \"10.0.0.10\"\n    ],\n    \"serializeImagePulls\": false,\n" +
			"    \"topologyManagerPolicyOptions\": {\n        \"prefer-closest-numa-nodes\": \"true\"\n    },\n" +
			"    \"reservedSystemCPUs\": \"0,64\"\n}\n",
	},
	{"nothing at all", "",
		"topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions:\n" +
			"  prefer-closest-numa-nodes: \"true\"\nreservedSystemCPUs: 0,64\n"},
	{
		"an end of the document, and Windows' lines",
		"a: 1\r\ntopologyManagerPolicy: none\r\n...\n",
		"a: 1\r\ntopologyManagerPolicy: restricted\r\ntopologyManagerPolicyOptions:\n" +
			"  prefer-closest-numa-nodes: \"true\"\nreservedSystemCPUs: 0,64\n...\n",
	},
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for _, test := range patches {
		after, err := config.Patch([]byte(test.before), wanted)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.after, string(after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		again, err := config.Patch(after, wanted)
		if err != nil || string(again) != string(after) {
			t.Errorf("%s: patched twice: %v\n%s", test.name, err, config.Diff(after, again))
		}
		keepsTheRest(t, test.name, test.before, string(after))
	}
}

// keepsTheRest: what the patch is to set is set, and nothing else is changed.
func keepsTheRest(t *testing.T, name, before, after string) {
	t.Helper()
	var a, b map[string]any
	if err := yaml.Unmarshal([]byte(before), &a); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(after), &b); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if b["topologyManagerPolicy"] != "restricted" || b["reservedSystemCPUs"] != "0,64" {
		t.Errorf("%s: not set: %v", name, b)
	}
	options, _ := a["topologyManagerPolicyOptions"].(map[string]any)
	patched, _ := b["topologyManagerPolicyOptions"].(map[string]any)
	if patched["prefer-closest-numa-nodes"] != "true" {
		t.Errorf("%s: options are %v", name, patched)
	}
	delete(patched, "prefer-closest-numa-nodes")
	delete(options, "prefer-closest-numa-nodes")
	for _, key := range []string{"topologyManagerPolicy", "reservedSystemCPUs"} {
		delete(a, key)
		delete(b, key)
	}
	if len(options) == 0 && len(patched) == 0 {
		delete(a, "topologyManagerPolicyOptions")
		delete(b, "topologyManagerPolicyOptions")
	}
	if diff := cmp.Diff(a, b); diff != "" && len(a)+len(b) > 0 {
		t.Errorf("%s: other keys changed (-before +after):\n%s", name, diff)
	}
}

func TestPatchRefuses(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		"- a\n- b\n":                                          "no object",
		"topologyManagerPolicy: [a]\n":                        "line 1 holds more than a value",
		"topologyManagerPolicy: |\n  none\n":                  "line 1: the value goes over several lines",
		"topologyManagerPolicyOptions: {a: b,\n  c: \"d\"}\n": "line 1: the object goes over several lines",
		"a: [":      "did not find expected node content",
		`{"a": 1,}`: "no JSON",
	} {
		if _, err := config.Patch([]byte(before), wanted); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", before, err, want)
		}
	}
}

// FuzzPatch: whatever the kubelet's configuration is, the patched one says what it is to say, or there is an
// error.
func FuzzPatch(f *testing.F) {
	for _, test := range patches {
		f.Add(test.before)
	}
	f.Fuzz(func(t *testing.T, before string) {
		var a map[string]any
		if yaml.UnmarshalStrict([]byte(before), &a) != nil {
			return
		}
		after, err := config.Patch([]byte(before), wanted)
		if err != nil {
			return
		}
		keepsTheRest(t, before, before, string(after))
	})
}

func TestDiff(t *testing.T) {
	t.Parallel()
	got := config.Diff([]byte("1\n2\n3\n4\n5\nold\n7\n"), []byte("1\n2\n3\n4\n5\nnew\n7\nlast"))
	if diff := cmp.Diff("@@\n 4\n 5\n-old\n+new\n 7\n+last\n", got); diff != "" {
		t.Error(diff)
	}
}
