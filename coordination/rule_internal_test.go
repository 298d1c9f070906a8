// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// TestPolicyWithDropIn: the kubelet's file names a policy, and a drop-in has the
// required one into the folder of drop-ins, which overrides the file. The coordinator plans by the policy of
// the folder if the folder is known, and otherwise by none of the file's.
func TestPolicyWithDropIn(t *testing.T) {
	dir := t.TempDir()
	const header = "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind + "\n"
	for name, policy := range map[string]model.Policy{
		kubelet.ConfigFile: model.PolicyNone, "kubelet.conf.d/99-tandem.conf": model.Restricted,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := header + "topologyManagerPolicy: " + string(policy) + "\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, kubelet.ConfigFile)
	for folder, want := range map[string]model.Policy{
		"": "", filepath.Join(dir, "kubelet.conf.d"): model.Restricted,
		filepath.Join(dir, "none"): model.PolicyNone,
	} {
		files := kubelet.ConfigFiles{Config: file, Dir: folder}
		k := newNodeKubelet(&Config{Kubelet: files, SysRoot: dir, Log: slog.New(slog.DiscardHandler)},
			&machine{tree: noTree()}, nil)
		if m, err := k.TopologyManager(); m.Rule.Policy != want && want != "" || (err != nil) != (want == "") {
			t.Errorf("drop-ins in %q: the coordinator plans by %+v, %v; want %q", folder, m, err, want)
		}
	}
}

func noTree() *topology.Tree { return topology.Assemble(nil, nil, []int{0, 1}) }

// TestRuleOfOptions: options count, and with one that is not understood the rule is unknown, which refuses
// nobody.
func TestRuleOfOptions(t *testing.T) {
	dir := t.TempDir()
	files := kubelet.ConfigFiles{Config: filepath.Join(dir, "config.yaml"), Dir: dir}
	for node, distances := range []string{"10 21", "21 10"} {
		folder := filepath.Join(dir, fmt.Sprintf("devices/system/node/node%d", node))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "distance"), []byte(distances), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for option, want := range map[string]model.Rule{
		"": {Policy: model.Restricted, Machine: 3},
		`prefer-closest-numa-nodes: "true"`: {
			Policy: model.Restricted, Machine: 3, Distances: [][]int{{10, 21}, {21, 10}},
		},
		`max-allowable-numa-nodes: "16"`: {Policy: model.Restricted, Machine: 3, MaxNodes: 16},
		`prefer-far-numa-nodes: "true"`:  {},
	} {
		content := "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind +
			"\ntopologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {" + option + "}\n"
		if err := os.WriteFile(files.Config, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readManager(files, os.DirFS(dir), noTree())
		if (err != nil) != (want.Policy == "") || err == nil && !reflect.DeepEqual(m.Rule, want) {
			t.Errorf("option %q: %+v, %v; want %+v", option, m, err, want)
		}
	}
}
