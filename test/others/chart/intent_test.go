package chart_test

import (
	"strings"
	"testing"

	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// Where kubelets have the right nodes/pods and no Pods API, their list of pods is asked; else nothing needs a
// token, unless somebody wants it.
func TestKubeletIsAskedWhereItHasNoPodsAPI(t *testing.T) {
	const asks = "--intent=pods-api,kubelet,podresources"
	for _, c := range []struct {
		version, values, args string
		right                 bool
	}{
		{"v1.32.9", "", "", false},
		{"v1.33.0", "", asks, true},
		{"v1.36.3", "", asks, true},
		{"v1.36.3-gke.100", "", asks, true},
		{"v1.37.0", "", "", false},
		{"v1.36.3", "intent: [pods-api, podresources]", "--intent=pods-api,podresources", false},
		{"v1.37.0", "intent: [kubelet]", "--intent=kubelet", true},
		{"v1.36.3", "mode: dra", "", false},
	} {
		chart, files, err := helm.Files(chartDir, namespace, c.version, given(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		manifests := helm.Manifests(chart, files)
		args := ""
		for line := range strings.Lines(manifests) {
			if arg := strings.TrimSpace(line); strings.HasPrefix(arg, "- --intent=") {
				args = strings.TrimPrefix(arg, "- ")
			}
		}
		token := strings.Contains(manifests, "automountServiceAccountToken: true")
		if args != c.args || strings.Contains(manifests, "nodes/pods") != c.right ||
			c.values != "mode: dra" && token != c.right ||
			(c.args != "") != strings.Contains(manifests, "fieldPath: status.hostIP") {
			t.Errorf("%s, %s: %q, token %t\n%s", c.version, c.values, args, token, manifests)
		}
	}
}

// What the chart does by itself on 1.36 is what kustomize builds of deployments/intent-kubelet.
func TestIntentOfKustomize(t *testing.T) {
	c, files, err := helm.Files(chartDir, namespace, "v1.36.3", given(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	chart := parse(t, helm.Manifests(c, files))
	for _, o := range chart {
		metadata := o["metadata"].(map[string]any)
		if metadata["name"] == "kube-system-tandem-intent" {
			metadata["name"] = "tandem-intent"
		}
		if ref, ok := o["roleRef"].(map[string]any); ok {
			ref["name"] = "tandem-intent"
		}
	}
	same(t, parse(t, kustomize(t, "../../../deployments/intent-kubelet")), chart)
}
