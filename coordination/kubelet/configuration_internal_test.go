// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: " + ConfigVersion + "\nkind: " + ConfigKind + "\n"

// layOut writes a configuration and drop-ins, without their heads, and returns the files.
func layOut(t *testing.T, config string, dropIns ...string) ConfigFiles {
	t.Helper()
	f := ConfigFiles{Config: filepath.Join(t.TempDir(), ConfigFile), Dir: t.TempDir()}
	err := os.WriteFile(f.Config, []byte(config), 0o600)
	for i, content := range dropIns {
		file := filepath.Join(f.Dir, fmt.Sprintf("%02d.conf", i))
		err = errors.Join(err, os.WriteFile(file, []byte(head+content), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWrongConfigurations: what is wrong with a file is said once, with the file and the line.
func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		head + "topologyManagerPolicyOptions: [a]\n": "line 3: the value of topologyManagerPolicyOptions " +
			"cannot be of type array",
		head + "topologyManagerPolicyOptions: {max-allowable-numa-nodes: 16}\n": "line 3: the value of " +
			"topologyManagerPolicyOptions cannot be of type number",
		head + "topologyManagerPolicy: [\n":               "yaml: line 3: did not find expected node content",
		head + "topologyManagerScope: 'pod\nmaxPods: 1\n": "yaml: line 3: found unexpected end of stream",
		head + "maxPods: 110\ntopologyManagerPolicy: {a: b}\n": "line 4: the value of topologyManagerPolicy " +
			"cannot be of type object",
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n": "" +
			"it is no KubeletConfiguration of kubelet.config.k8s.io/v1beta1: " +
			"its kind is KubeProxyConfiguration, its apiVersion kubeproxy.config.k8s.io/v1alpha1",
		"maxPods: 110\n": "it is no KubeletConfiguration of kubelet.config.k8s.io/v1beta1: its kind is none, " +
			"its apiVersion none",
		"just words\n": "it is no object of keys and values",
		"":             "it is empty, and the kubelet does not start with an empty file: fill or remove it",
		head + strings.Repeat("# long\n", maxConfigSize/7): "more than 1048576 bytes",
	} {
		f := layOut(t, content)
		if _, err := ReadSettings(f, nil); err == nil || err.Error() != f.Config+": "+want {
			t.Errorf("%.200q: %v, want %q", content, err, want)
		}
		f = layOut(t, head, "")
		if err := os.WriteFile(filepath.Join(f.Dir, "00.conf"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSettings(f, nil); err == nil || err.Error() != filepath.Join(f.Dir, "00.conf")+": "+want {
			t.Errorf("drop-in %.200q: %v, want %q", content, err, want)
		}
	}
}

// TestMerge: the case of keys, null, repeated keys, nested keys and flags count as for the kubelet.
func TestMerge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config  string
		dropIns []string
		flags   Flags
		policy  string
		options map[string]string
		origin  string // of the policy: base name of a file, or a part of a flag's text
	}{
		"the default": {policy: "none"},
		"a key in another case is not read": {config: "topologymanagerpolicy: restricted\n" +
			"TopologyManagerPolicy: restricted\n", policy: "none"},
		"a repeated key": {config: "topologyManagerPolicy: best-effort\ntopologyManagerPolicy: restricted\n",
			policy: "restricted", origin: ConfigFile},
		"a later drop-in": {config: "topologyManagerPolicy: none\n", dropIns: []string{
			"topologyManagerPolicy: best-effort\n", "topologyManagerPolicy: restricted\n", "maxPods: 42\n",
		}, policy: "restricted", origin: "01.conf"},
		"small letters in a drop-in": {config: "topologyManagerPolicy: none\n",
			dropIns: []string{"topologymanagerpolicy: restricted\n"}, policy: "restricted", origin: "00.conf"},
		"capital letters in a drop-in": {config: "topologyManagerPolicy: none\n",
			dropIns: []string{"TopologyManagerPolicy: restricted\n"}, policy: "none", origin: ConfigFile},
		"null in a drop-in": {config: "topologyManagerPolicy: restricted\n",
			dropIns: []string{"topologyManagerPolicy: null\n"}, policy: "none", origin: "00.conf"},
		"options": {config: "topologyManagerPolicyOptions: {a: first, b: first}\n",
			dropIns: []string{
				"topologyManagerPolicyOptions: {b: last, c: last}\n", "topologyManagerPolicyOptions: {a: null}\n",
			},
			policy: "none", options: map[string]string{"b": "last", "c": "last"}},
		"a flag": {config: "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {a: first}\n",
			flags: ParseFlags([]string{"kubelet", "--topology-manager-policy=none", "--topology-manager-policy",
				"best-effort", "--topology-manager-policy-options=b=last"}),
			policy: "best-effort", options: map[string]string{"b": "last"}, origin: "--topology-manager-policy"},
	} {
		f := layOut(t, head+test.config, test.dropIns...)
		s, err := ReadSettings(f, test.flags)
		origin := s.Origin("topologyManagerPolicy")
		if err != nil || s.Policy != test.policy || !strings.Contains(origin, test.origin) ||
			test.origin == "" && origin != "" || len(s.Files) != 1+len(test.dropIns) {
			t.Errorf("%s: policy %s of %q in %q, %v; want %s of %q", name, s.Policy, origin, s.Files, err, test.policy,
				test.origin)
		}
		if diff := cmp.Diff(test.options, s.PolicyOptions); diff != "" {
			t.Errorf("%s: options (-want +got):\n%s", name, diff)
		}
	}
}

// TestMissingFiles: only the file of a guessed path may be missing, and only beside a folder of drop-ins.
func TestMissingFiles(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for f, known := range map[ConfigFiles]bool{
		{}: false, {Config: none}: false, {Config: none, Guessed: true}: false,
		{Config: none, Dir: t.TempDir()}: false, {Config: none, Dir: t.TempDir(), Guessed: true}: true,
	} {
		if _, err := ReadSettings(f, nil); (err == nil) != known {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// TestLinksBelowRoot: links lead where they lead the kubelet, whose root is another one.
func TestLinksBelowRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(root, "etc/real"), 0o755),
		os.MkdirAll(filepath.Join(root, "opt/drop"), 0o755),
		os.WriteFile(filepath.Join(root, "opt/k.yaml"), []byte(head+"topologyManagerPolicy: restricted\n"), 0o600),
		os.WriteFile(filepath.Join(root, "opt/d.conf"), []byte(head+"topologyManagerScope: pod\n"), 0o600),
		os.Symlink("/etc/real", filepath.Join(root, "etc/kubernetes")),
		os.Symlink("../../../../opt/k.yaml", filepath.Join(root, "etc/real/kubelet.yaml")),
		os.Symlink("/opt/d.conf", filepath.Join(root, "opt/drop/10.conf")),
		os.Symlink("/loop", filepath.Join(root, "loop")))
	if err != nil {
		t.Fatal(err)
	}
	f := ConfigFiles{
		Root: root, Dir: filepath.Join(root, "opt/drop"),
		Config: filepath.Join(root, "etc/kubernetes/kubelet.yaml"),
	}
	if s, err := ReadSettings(f, nil); err != nil || s.Policy != "restricted" || s.Scope != "pod" {
		t.Errorf("policy %s, scope %s: %v", s.Policy, s.Scope, err)
	}
	f.Config = filepath.Join(root, "loop")
	if s, err := ReadSettings(f, nil); err == nil {
		t.Errorf("a link to itself: %+v", s)
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	got := ParseFlags([]string{
		"/usr/bin/kubelet", "--config", "/etc/k.yaml", "--fail-swap-on", "--v=2", "--kube_reserved=cpu=1", "word",
		"--kube-reserved", "memory=1Gi, cpu=2", "--", "--config=/other",
	})
	want := Flags{
		"config": {"/etc/k.yaml"}, "fail-swap-on": {""}, "v": {"2"},
		"kube-reserved": {"cpu=1", "memory=1Gi, cpu=2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	reserved := got.mapEntries("kube-reserved", true)
	if diff := cmp.Diff(map[string]string{"cpu": "2", "memory": "1Gi"}, reserved); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	entries := Flags{"o": {"a=1,b=2"}}.mapEntries("o", false)
	if diff := cmp.Diff(map[string]string{"a": "1,b=2"}, entries); diff != "" {
		t.Errorf("pairs of a flag that does not split (-want +got):\n%s", diff)
	}
	memory := Flags{"m": {"0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi", "x"}}.reservedMemory("m")
	if len(memory) != 2 {
		t.Errorf("reserved memory %q, want that of two nodes", memory)
	}
}

func TestReservedAmount(t *testing.T) {
	t.Parallel()
	for want, s := range map[int]Settings{
		0: {KubeReserved: map[string]string{"memory": "1Gi"}, SystemReserved: map[string]string{}},
		1: {KubeReserved: map[string]string{"cpu": "500m"}, SystemReserved: map[string]string{"cpu": "500m"}},
		2: {KubeReserved: map[string]string{"cpu": "1001m"}}, 3: {SystemReserved: map[string]string{"cpu": "3"}},
	} {
		if got, err := s.ReservedAmount(); got != want || err != nil {
			t.Errorf("%v, %v: %d, %v, want %d", s.KubeReserved, s.SystemReserved, got, err, want)
		}
	}
	wrong := Settings{KubeReserved: map[string]string{"cpu": "many"}}
	if _, err := wrong.ReservedAmount(); err == nil || !strings.Contains(err.Error(), `kubeReserved, cpu "many"`) {
		t.Errorf("an amount that is no quantity: %v", err)
	}
}
