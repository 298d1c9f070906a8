// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// Where kubelets have the right nodes/pods and no Pods API, their list of pods is asked; else nothing needs a
// token but events, which can be switched off.
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
		values := c.values
		if values != "mode: dra" {
			values += "\nevents: false"
		}
		chart, files, err := helm.Files(chartDir, namespace, c.version, given(t, values))
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

// Events take the token, the right to create them and nothing else; without them neither is there.
func TestEvents(t *testing.T) {
	for values, want := range map[string]bool{
		"": true, "events: false": false, "mode: dra": false,
	} {
		c, files, err := helm.Files(chartDir, namespace, "v1.37.0", given(t, values))
		if err != nil {
			t.Fatal(err)
		}
		roles := 0
		for _, o := range parse(t, helm.Manifests(c, files)) {
			metadata := o["metadata"].(map[string]any)
			if o["kind"] != "ClusterRole" || metadata["name"] != "kube-system-tandem-events" {
				continue
			}
			roles++
			const rules = `[{"apiGroups":[""],"resources":["events"],"verbs":["create"]}]`
			if got, err := json.Marshal(o["rules"]); err != nil || string(got) != rules {
				t.Errorf("%q: rules %s, %v", values, got, err)
			}
		}
		token := strings.Contains(helm.Manifests(c, files), "automountServiceAccountToken: true")
		if (roles == 1) != want || values != "mode: dra" && token != want {
			t.Errorf("%q: %d roles, token %t, want %t", values, roles, token, want)
		}
	}
}

// The kubelet's certificate is mounted as one file, where a value names it: the folder has keys.
func TestKubeletCertificate(t *testing.T) {
	const own = "kubeletCertificate: /var/lib/kubelet/pki/kubelet.crt"
	for values, want := range map[string]int{
		"": 0, own: 2, own + "\npublish: [tandem]": 2, own + "\npublish: [tandem]\npublishKubeletDir: true": 0,
	} {
		c, files, err := helm.Files(chartDir, namespace, "v1.36.3", given(t, values))
		if err != nil {
			t.Fatal(err)
		}
		manifests := helm.Manifests(c, files)
		file := strings.Count(manifests, "hostPath: {path: /var/lib/kubelet/pki/kubelet.crt, type: File}")
		mount := strings.Count(manifests, "mountPath: /var/lib/kubelet/pki/kubelet.crt, readOnly: true")
		if file != want || mount != want {
			t.Errorf("%q: %d volumes, %d mounts, want %d", values, file, mount, want)
		}
	}
}

// What the chart does by itself on 1.36 is what kustomize builds of deployments/intent-kubelet.
func TestIntentOfKustomize(t *testing.T) {
	c, files, err := helm.Files(chartDir, namespace, "v1.36.3", given(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	chart := slices.DeleteFunc(parse(t, helm.Manifests(c, files)), func(o object) bool {
		return strings.Contains(o.name(), "-alignment")
	})
	same(t, unprefixed(parse(t, kustomize(t, "../../../deployments/intent-kubelet"))), unprefixed(chart))
}

// unprefixed names objects of the cluster as the kustomizations do: the chart puts its namespace before.
func unprefixed(chart []object) []object {
	const prefix = "kube-system-"
	for _, o := range chart {
		metadata := o["metadata"].(map[string]any)
		metadata["name"] = strings.TrimPrefix(metadata["name"].(string), prefix)
		if ref, ok := o["roleRef"].(map[string]any); ok {
			ref["name"] = strings.TrimPrefix(ref["name"].(string), prefix)
		}
	}
	return chart
}

// A cluster without DRA gets no driver, which would wait for an API that never comes.
func TestModeDRANeedsTheAPI(t *testing.T) {
	for version, want := range map[string]string{
		"v1.33.9": "mode: dra requires Kubernetes 1.34 or later, and the cluster has v1.33.9", "v1.34.0": "",
	} {
		_, _, err := helm.Files(chartDir, namespace, version, given(t, "mode: dra"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}
