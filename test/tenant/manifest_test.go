// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// deployed is the container of a daemon in deployments/base.
type deployed corev1.Container

func manifest(t testing.TB, program string) deployed {
	t.Helper()
	file := "daemonset-" + strings.TrimPrefix(program, "tandem-") + ".yaml"
	content, err := os.ReadFile(filepath.Join("../../deployments/base", file))
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.Unmarshal(content, &set); err != nil {
		t.Fatal(err)
	}
	return deployed(set.Spec.Template.Spec.Containers[0])
}

// memory returns the limit of the daemon's memory in MiB.
func (d deployed) memory() int { return int(d.Resources.Limits.Memory().Value() >> 20) }

// environment returns the variables with a value.
func (d deployed) environment() (all []string) {
	for _, v := range d.Env {
		if v.Value != "" {
			all = append(all, v.Name+"="+v.Value)
		}
	}
	return all
}
