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

const chart = "../../../../deployments/helm/tandem"

// TestRelease: the manifests of the chart for a version of Kubernetes, with the image, the namespace and
// the values of the command line. Of two files the later one counts, key by key.
func TestRelease(t *testing.T) {
	c := choice{
		chart: chart, namespace: "gpus", kubernetes: "1.35",
		settings: []string{"image.repository=registry.example/tandem", "gpu.vendor=nvidia"},
		texts:    []string{"image.tag=1"},
	}
	for _, values := range []string{
		"{log: {level: info, format: json}, gpu: {vendor: amd}}", "log: {level: debug}",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		c.files = append(c.files, file)
	}
	got, err := c.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image: registry.example/tandem:1\n", "namespace: \"gpus\"\n", "- --log-level=debug\n",
		"- --log-format=json\n", "- --vendor=nvidia\n", "- --intent=pods-api,kubelet,podresources\n",
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
		"kind: ClusterRole kind: ClusterRoleBinding kind: ServiceAccount"; kinds != want {
		t.Errorf("%s, want %s", kinds, want)
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
			c.choice.chart = chart
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
