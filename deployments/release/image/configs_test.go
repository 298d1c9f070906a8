// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/apiserver"
)

// chartPod is the pod of one of the chart's DaemonSets, with configurations by the node's label.
func chartPod(t *testing.T, daemon string) (set appsv1.DaemonSet) {
	t.Helper()
	content, err := os.ReadFile("../../../test/others/chart/testdata/configs.golden.yaml")
	ready(t, err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "kind: DaemonSet\nmetadata:\n  name: "+daemon+"\n") {
			ready(t, yaml.UnmarshalStrict([]byte(document), &set))
			return set
		}
	}
	t.Fatalf("the chart has no DaemonSet %s", daemon)
	return set
}

// TestChartConfigs: tandem-rdma in the chart's pod has the configuration that the node's label names, and a
// label that names none leaves it alone. The kubelet starts again what the signal ended.
func TestChartConfigs(t *testing.T) {
	n := nodeFor(t, "oci-mi300x-derived", 2)
	api := apiserver.Serve(t, "")
	n.joinCluster(t, api)
	ready(t, os.MkdirAll(filepath.Join(n.kubeletDir(), "pod-resources"), 0o755))
	pool := func(name string) string {
		return `{"resourceList": [{"resourcePrefix": "tandem.dev", "resourceName": "` + name +
			`", "selectors": {"vendors": ["15b3"]}}]}`
	}
	p := &pod{
		node: n, spec: chartPod(t, "tandem-rdma").Spec.Template.Spec,
		configMaps: map[string]map[string]string{
			"tandem-rdma": {"default": pool("rdma_vf"), "other": pool("other_vf")},
		},
	}
	slices.Reverse(p.spec.Containers) // the first is the first of the process namespace, which pause is else
	all := p.start(t)
	manager, daemon := all[0], all[1]
	if got := n.registered(t); got != "tandem.dev/rdma_vf" {
		t.Errorf("without a label: registered %s", got)
	}
	api.Set("none-such")
	const named = apiserver.RDMALabel + ` names the configuration`
	if !comes(func() bool { return strings.Contains(manager.Log(), named) }) {
		t.Fatalf("it does not say %q:\n%s", named, manager.Log())
	}
	if !daemon.Running() {
		t.Errorf("a label without a configuration ends it:\n%s", daemon.Log())
	}
	api.Set("other")
	if code := daemon.Exit(t); code != 0 {
		t.Errorf("the signal ends it with exit code %d:\n%s", code, daemon.Log())
	}
	start(t, p.process(t, p.spec.Containers[1]), manager)
	if got := n.registered(t); got != "tandem.dev/other_vf" {
		t.Errorf("with a label: registered %s", got)
	}
}
