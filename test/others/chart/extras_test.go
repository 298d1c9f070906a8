// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMonitoringValues: the chart's alerts and dashboard are those that can be applied without it.
func TestMonitoringValues(t *testing.T) {
	rendered, err := render(t,
		"metrics: {prometheusRule: {enabled: true, labels: {release: mine}}, dashboard: {enabled: true}}")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	for _, o := range parse(t, rendered) {
		found[o.name()] = o
	}
	rule := found["PrometheusRule/tandem"]
	if _, err := operators(rule); err != nil || rule.at("metadata", "labels", "release") != "mine" {
		t.Errorf("the rule is %v: %v", rule, err)
	}
	want := manifest(t, "deployments/helm/tandem/monitoring/alerts.yaml")[0]
	if diff := cmp.Diff(want.at("spec"), rule.at("spec")); diff != "" {
		t.Errorf("the alerts are others (-want +got):\n%s", diff)
	}
	dashboard, err := os.ReadFile(alertsDir + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	configMap := found["ConfigMap/tandem-dashboard"]
	if got, _ := configMap.at("data", "dashboard.json").(string); strings.TrimSpace(got) !=
		strings.TrimSpace(string(dashboard)) || configMap.at("metadata", "labels", "grafana_dashboard") != "1" {
		t.Errorf("the dashboard is another one:\n%s", got)
	}
}

// TestMetricsOfTheNode: a pod in the node's network serves metrics to the node alone, unless values say
// otherwise.
func TestMetricsOfTheNode(t *testing.T) {
	for _, c := range []struct{ values, daemon, want string }{
		{"metrics: {enabled: true}", "tandem-gpu", ":9478"},
		{"metrics: {enabled: true}", "tandem-rdma", "127.0.0.1:9478"},
		{"{rdma: {hostNetwork: false}, metrics: {enabled: true}}", "tandem-rdma", ":9478"},
		{"metrics: {enabled: true, hostAddress: 0.0.0.0, port: 9000}", "tandem-rdma", "0.0.0.0:9000"},
		{"{mode: dra, metrics: {enabled: true}}", "tandem-dra", "127.0.0.1:9478"},
		{"{mode: dra, metrics: {enabled: true, hostAddress: '[::]'}}", "tandem-dra", "[::]:9478"},
		{"", "tandem-rdma", ""},
	} {
		rendered, err := render(t, c.values)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		_, _, container := daemonSet(t, parse(t, rendered), c.daemon)
		for _, arg := range container["args"].([]any) {
			if address, ok := strings.CutPrefix(arg.(string), "--metrics-bind-address="); ok {
				got = address
			}
		}
		if got != c.want {
			t.Errorf("%s: %s serves at %q, want %q", c.values, c.daemon, got, c.want)
		}
	}
}

// TestNameOverride: objects have other names then, and find each other by them.
func TestNameOverride(t *testing.T) {
	for _, values := range []string{"intent: [kubelet]", "{mode: dra}"} {
		names := func(values string) (all []string) {
			rendered, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range parse(t, rendered) {
				all = append(all, o.name())
				if spec, ok := o.at("spec", "template", "spec", "serviceAccountName").(string); ok {
					all = append(all, "ServiceAccount/"+spec)
				}
				if subject, ok := o.at("subjects").([]any); ok {
					all = append(all, "ServiceAccount/"+subject[0].(map[string]any)["name"].(string))
				}
				if role, ok := o.at("roleRef", "name").(string); ok {
					all = append(all, "ClusterRole/"+role)
				}
			}
			return all
		}
		before := names(values)
		after := names(strings.Replace("{nameOverride: pair, "+strings.Trim(values, "{}")+"}", "{, ", "{", 1))
		for i := range before {
			if strings.HasPrefix(before[i], "DeviceClass/") || strings.Contains(before[i], "-dra-counts") {
				continue // of the cluster: one of each
			}
			before[i] = strings.Replace(before[i], "tandem", "pair", 1)
		}
		if diff := cmp.Diff(before, after); diff != "" || len(after) < 6 {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// testTrafficPod: with an image for traffic, the container has that image, and the program from Tandem's.
func testTrafficPod(t *testing.T) {
	t.Helper()
	schema, err := published(t, versions[len(versions)-1])("v1", "Pod")
	if err != nil {
		t.Fatal(err)
	}
	pod := parse(t, renderFile(t, `{gpu: {vendor: amd}, image: {repository: r.io/tandem, tag: v1}, test: {pairs: 2,
  traffic: {image: "r.io/perftest:v1", min: 90, minRate: 60, annotations: {k8s.v1.cni.cncf.io/networks: "a,a"}}}}`,
		"tests/verify.yaml"))[0]
	if err := schema.Validate(map[string]any(pod)); err != nil {
		t.Error(err)
	}
	first := object(pod.at("spec", "initContainers").([]any)[0].(map[string]any))
	container := object(pod.at("spec", "containers").([]any)[0].(map[string]any))
	want := `r.io/tandem:v1 [cp /usr/bin/tandem /program/tandem]; r.io/perftest:v1 [/program/tandem verify --gpus=2 ` +
		`--vfs=2 --traffic --traffic-seconds=5 --traffic-min=90 --traffic-min-rate=60]; a,a`
	if got := fmt.Sprintf("%s %v; %s %v; %s", first["image"], first["command"], container["image"],
		container["command"], pod.at("metadata", "annotations", "k8s.v1.cni.cncf.io/networks")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestVerifyPod: "helm test" asks for what the chart offers, and nothing of it is installed. For --logs the
// hook has to be a pod.
func TestVerifyPod(t *testing.T) {
	schema, err := published(t, versions[len(versions)-1])("v1", "Pod")
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]string{
		"":                        "null", // it fails, and says which value names the GPUs
		"{gpu: {vendor: amd}}":    `{"amd.com/gpu":1,"tandem.dev/rdma_vf":1}`,
		"{gpu: {vendor: nvidia}}": `{"nvidia.com/gpu":1,"tandem.dev/rdma_vf":1}`,
		"{gpu: {vendor: amd}, test: {pairs: 4, vfResource: a/b}}": `{"a/b":4,"amd.com/gpu":4}`,
		"{test: {gpuResource: nvidia.com/mig-1g.10gb}}":           `{"nvidia.com/mig-1g.10gb":1,"tandem.dev/rdma_vf":1}`,
		"{rdma: {existingConfigMap: a}}":                          "",
		"{rdma: {enabled: false}}":                                "",
		"{mode: dra}":                                             "",
	} {
		pods := parse(t, renderFile(t, values, "tests/verify.yaml"))
		if want == "" {
			if len(pods) != 0 {
				t.Errorf("%s: %v", values, pods)
			}
			continue
		}
		if len(pods) != 1 {
			t.Fatalf("%s: %d pods", values, len(pods))
		}
		if err := schema.Validate(map[string]any(pods[0])); err != nil {
			t.Errorf("%s: %v", values, err)
		}
		container := object(pods[0].at("spec", "containers").([]any)[0].(map[string]any))
		if got := text(container.at("resources", "limits")); got != want ||
			pods[0].at("metadata", "annotations", "helm.sh/hook") != "test" {
			t.Errorf("%s: asks for %s, want %s", values, got, want)
		}
		command := fmt.Sprint(container["command"])
		if asks := want != "null"; strings.Contains(command, "tandem verify --gpus=") != asks ||
			strings.Contains(command, "--set test.gpuResource=RESOURCE") == asks ||
			strings.Contains(command, "exit 1") == asks {
			t.Errorf("%s: runs %s", values, command)
		}
	}
	testTrafficPod(t)
	if rendered, err := render(t, ""); err != nil || strings.Contains(rendered, "-verify") {
		t.Errorf("the pod is installed: %v", err)
	}
}
