// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestSettingsOfAPipe: kubectl tandem doctor sends the kubelet's configuration through a pipe, which is read
// once, for the hints of VFs and for the findings.
func TestSettingsOfAPipe(t *testing.T) {
	sys, tree := machines.Read(t, "oci-mi300x-derived", 1)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"kind: KubeletConfiguration\ntopologyManagerScope: pod\n"
	if _, err := w.WriteString(config); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := Node{
		DevRoot: t.TempDir(), RunDir: t.TempDir(), KubeletDir: kubelettest.Dir(t), Sys: sys, Tree: tree,
		Config: fmt.Sprintf("/proc/self/fd/%d", r.Fd()),
	}
	if got := n.hintSettings().TopologyManagerScope; got != "pod" {
		t.Errorf("the scope of the settings is %q", got)
	}
	found := Examine(n).Findings
	if slices.ContainsFunc(found, func(f Finding) bool { return f.ID == "kubelet-config" }) {
		t.Errorf("it finds %+v", found)
	}
}

// TestConfigOfTheNode: the ConfigMap of the SR-IOV network operator has a key for each node. The node's
// counts, also without a pool, and each of a ConfigMap without a key of its name.
func TestConfigOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := filepath.Join(dir, "pods/uid/volumes/kubernetes.io~configmap/device-plugin-config")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"gpu-1": `{"resourceList": [{"resourceName": "a"}]}`, "gpu-2": `{"resourceList": [{"resourceName": "b"}]}`,
		"cpu-1": `{"resourceList": null}`,
	} {
		if err := os.WriteFile(filepath.Join(volume, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[string]string{"gpu-1": "gpu-1", "gpu-2": "gpu-2", "cpu-1": "", "other": ""} {
		name, err := mountedConfig(dir, node)
		if strings.TrimPrefix(name, volume+"/") != want || (err != nil) != (node == "other") {
			t.Errorf("of node %s: %q, %v; want %q", node, name, err, want)
		}
	}
}

// TestWholeNodesReserved: the findings are in the order of the NUMA nodes, in every run.
func TestWholeNodesReserved(t *testing.T) {
	t.Parallel()
	f := &settings{
		Settings: kubelet.Settings{CPUPolicy: static, ReservedCPUs: "0-63"}, CPUs: map[int]topology.CPUSet{},
	}
	const nodes = 64
	for number := range nodes {
		f.CPUs[number] = topology.CPUSet{number: true}
	}
	findings := wholeNodesReserved(f)
	if len(findings) != nodes {
		t.Fatalf("%d findings", len(findings))
	}
	for number, found := range findings {
		want := fmt.Sprintf("All CPUs of NUMA node %d are reserved for the system.", number)
		if found.Summary != want {
			t.Errorf("finding %d is %q", number, found.Summary)
		}
	}
}

// TestReadElsewhere: for a reader who is not on the node, evidence names the kubelet's configz instead of the
// file.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	n := Node{Config: filepath.Join(t.TempDir(), "stdin"), ReadElsewhere: "gpu-1"}
	content := "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"topologyManagerPolicy: none\n"
	if err := os.WriteFile(n.Config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n.shapes.Node = &n
	f := n.readSettings()
	if f.unread != nil {
		t.Fatal(f.unread)
	}
	f.Changed = f.Files
	var text strings.Builder
	for _, found := range runChecks(&n, ofPlugins, kubeletChecks...) {
		text.WriteString(strings.Join(append(found.Evidence, found.Fix...), "\n") + "\n")
	}
	for _, want := range []string{
		"configz of the kubelet of gpu-1: topologyManagerPolicy: none\n",
		"configz of the kubelet of gpu-1: cpuManagerPolicy is not set, the default is none\n",
		"configz of the kubelet of gpu-1 is younger than the kubelet's process\n",
		"in the kubelet's configuration: topologyManagerPolicy: restricted (tandem doctor --drop-in ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), n.Config) {
		t.Errorf("words of a reader on the node:\n%s", text.String())
	}
}

// TestPlugins: what the running plugins say of themselves is found; nothing where all is well or none runs.
func TestPlugins(t *testing.T) {
	sys := machines.Sys(t, "oci-mi300x-derived", 1)
	gpus := []*api.Resource{{Kind: string(device.GPU), Connected: true}}
	for _, c := range []struct {
		asked  bool
		answer *api.StatusResponse
		want   string // the IDs
	}{
		{false, nil, ""},
		{true, &api.StatusResponse{Resources: gpus}, ""},
		{true, nil, "error gpus-not-offered;"},
		{true, &api.StatusResponse{Resources: gpus, Alignment: &api.Alignment{Why: "no source answers"}},
			"warning alignment-not-enforced;"},
	} {
		n := Node{Sys: sys, asked: c.asked, status: coordinator.NewStatus(c.answer)}
		var found strings.Builder
		for _, f := range runChecks(&n, ofPlugins, pluginChecks[:2]...) {
			found.WriteString(string(f.Severity) + " " + f.ID + ";")
			if len(f.Evidence) != 1 || len(f.Fix) == 0 {
				t.Errorf("%s: evidence %q, fix %q", f.ID, f.Evidence, f.Fix)
			}
		}
		if got := found.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.answer, got, c.want)
		}
	}
	n := Node{RunDir: t.TempDir()}
	n.AskMode(t.Context())
	if n.Status() != nil || n.Mode != "" {
		t.Errorf("where none runs: %+v in mode %q", n.Status(), n.Mode)
	}
}

// TestRefusedPodsFlag: the flag has numbers of pods, with requests of their containers if known.
func TestRefusedPodsFlag(t *testing.T) {
	t.Parallel()
	var pods RefusedPods
	for _, value := range []string{
		"1:cpu=8,example.com/gpu=2;example.com/vf=1", "2", "2:example.com/gpu=1", "0",
		"2:cpu=8,example.com/gpu=2;example.com/vf=1", "1:init=1,example.com/gpu=1",
	} {
		if err := pods.Set(value); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"3:cpu=8,example.com/gpu=2;example.com/vf=1", "2:example.com/gpu=1", "1:init=1,example.com/gpu=1", "2",
	}
	if got := pods.Flags(); !slices.Equal(got, want) || pods.Number() != 8 {
		t.Errorf("%d pods as %q, want %q", pods.Number(), got, want)
	}
	for _, wrong := range []string{"", "-1", "x", "1:", "1:gpu", "1:=2", "1:gpu=-1", "1:gpu=1;;vf=1"} {
		if err := new(RefusedPods).Set(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	var none RefusedPods
	if got := none.Flags(); !slices.Equal(got, []string{"0"}) {
		t.Errorf("no pods as %q", got)
	}
}
