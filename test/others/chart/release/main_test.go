// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/others/chart/render"
)

// TestRelease: the manifests of the chart, with the image, the namespace and the values of the command line.
func TestRelease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("log: {level: debug}\ngpu: {vendor: amd}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := choice{
		chart: "../../../../deployments/helm/tandem", namespace: "gpus", kubernetes: render.Newest,
		files:    []string{file},
		settings: []string{"image.repository=registry.example/tandem", "gpu.vendor=nvidia"},
		texts:    []string{"image.tag=1"},
	}
	got, err := c.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image: registry.example/tandem:1\n", "namespace: \"gpus\"\n",
		"- --log-level=debug\n", "- --vendor=nvidia\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "rollout status") {
		t.Error("the notes are among the manifests")
	}
	kinds := strings.Join(regexp.MustCompile(`(?m)^kind: \w+`).FindAllString(got, -1), " ")
	if want := strings.Repeat("kind: ValidatingAdmissionPolicy kind: ValidatingAdmissionPolicyBinding ", 3) +
		"kind: ConfigMap kind: DaemonSet kind: DaemonSet kind: ClusterRole kind: ClusterRoleBinding " +
		"kind: ServiceAccount"; kinds != want {
		t.Errorf("%s, want %s", kinds, want)
	}
}

// TestKubernetesOfRelease: on versions whose kubelets have no Pods API the daemons ask the kubelet.
func TestKubernetesOfRelease(t *testing.T) {
	for version, asks := range map[string]bool{render.Newest: false, "1.35": true, "v1.33.4": true} {
		c := choice{chart: "../../../../deployments/helm/tandem", namespace: "gpus", kubernetes: version}
		got, err := c.render()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, "--intent=pods-api,kubelet,podresources") != asks {
			t.Errorf("%s: want the source kubelet %t:\n%s", version, asks, got)
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, c := range []struct {
		choice choice
		want   string
	}{
		{choice{files: []string{"none.yaml"}}, "none.yaml"},
		{choice{settings: []string{"log.level"}}, "--set log.level"},
		{choice{settings: []string{"log.level=loud"}}, "/log/level"},
		{choice{chart: "none"}, "load the chart none"},
		{choice{kubernetes: "newest"}, `read the version "newest"`},
	} {
		if c.choice.chart == "" {
			c.choice.chart = "../../../../deployments/helm/tandem"
		}
		if c.choice.kubernetes == "" {
			c.choice.kubernetes = render.Newest
		}
		c.choice.out = filepath.Join(t.TempDir(), "release.yaml")
		if err := c.choice.write(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.choice, err, c.want)
		}
		if _, err := os.Stat(c.choice.out); err == nil {
			t.Errorf("%v: there is a file", c.choice)
		}
	}
}

// TestValuesOverride: of two files the later one counts, key by key.
func TestValuesOverride(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for i, content := range []string{"a: {b: 1, c: 2}", "a: {c: 3}"} {
		if err := os.WriteFile(files[i], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	values, err := render.Values(files...)
	a, _ := values["a"].(map[string]any)
	if err != nil || a["b"] != 1.0 || a["c"] != 3.0 {
		t.Errorf("%v, %v", values, err)
	}
}
