// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/vm/build"
)

// TestManifest: the operators' pods are as they render them, but for the image and the machine's names, and
// what they mount is there. None mounts Tandem's own run folder.
func TestManifest(t *testing.T) {
	t.Parallel()
	specs := filepath.Join("../../..", operatorSpecs)
	text, err := manifest(operators, specs)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, item := range list.Items {
		var d appsv1.DaemonSet
		if err := json.Unmarshal(item, &d); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, d.Namespace+"/"+d.Kind)
		if d.Kind != "DaemonSet" {
			continue
		}
		if own := d.Spec.Template; !reflect.DeepEqual(own.Labels, d.Spec.Selector.MatchLabels) {
			t.Errorf("%s selects %v, its pods have %v", d.Name, d.Spec.Selector.MatchLabels, own.Labels)
		}
		i := slices.IndexFunc(operators, func(o operator) bool { return o.daemonSet == d.Name })
		if i < 0 {
			t.Fatalf("there is a DaemonSet %s", d.Name)
		}
		isRendered(t, d.Spec.Template.Spec, filepath.Join(specs, operators[i].spec))
	}
	if want := []string{
		"/Namespace", "kube-amd-gpu/DaemonSet", "/Namespace", "sriov-network-operator/ConfigMap",
		"sriov-network-operator/DaemonSet",
	}; !slices.Equal(kinds, want) {
		t.Errorf("the manifest has %v, want %v", kinds, want)
	}
}

// isRendered compares a pod with that of a file.
func isRendered(t *testing.T, got corev1.PodSpec, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want corev1.PodSpec
	if err := yaml.UnmarshalStrict(content, &want); err != nil {
		t.Fatal(err)
	}
	for i := range got.Containers {
		if got.Containers[i].Image != build.Image {
			t.Errorf("%s: the image is %q", file, got.Containers[i].Image)
		}
		got.Containers[i].Image = want.Containers[i].Image
	}
	for i, v := range got.Volumes {
		if v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, "/run/tandem") {
			t.Errorf("%s mounts %s", file, v.HostPath.Path)
		}
		if v.HostPath != nil && v.HostPath.Path == sysroot {
			v.HostPath.Path = "/sys"
		}
		if v.ConfigMap != nil && v.ConfigMap.Name != operators[1].config {
			t.Errorf("%s mounts the ConfigMap %s, volume %d", file, v.ConfigMap.Name, i)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the pod is\n%v\nwant\n%v", file, got, want)
	}
}

func TestManifestWithoutFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := manifest(operators, dir); err == nil {
		t.Error("there is a manifest without pods")
	}
	file := filepath.Join(dir, operators[0].spec)
	if err := os.WriteFile(file, []byte("containers: []\nimage: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest(operators, dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a pod with a key that pods do not have: %v", err)
	}
}

func TestConnected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, said string
		fault      string
	}{
		{"both", `{"resources": [{"name": "a/b", "connected": true}, {"name": "c/d", "connected": true}]}`, ""},
		{"one left", `{"resources": [{"name": "a/b", "connected": true}, {"name": "c/d"}]}`, "no plugin of c/d"},
		{"one alone", `{"resources": [{"name": "c/d", "connected": true}]}`, "no plugin of a/b"},
		{"nothing said", "", "read tandem status"},
	} {
		err := connected(c.said, "a/b", "c/d")
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
