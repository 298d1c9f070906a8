// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestDoctorKnowsTheCost: doctor quotes the measurement of the default scheduler in docs/performance.md: the
// share of pods that kubelets rejected at least once.
func TestDoctorKnowsTheCost(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.with("--refused-pods", "1")
	_, text, _ := run(s.command()...)
	row := regexp.MustCompile(`(?m)^\| default scheduler \|[^|]*\| ([\d.]+) \|`).FindSubmatch(page)
	if row == nil {
		t.Fatal("docs/performance.md has no row of the default scheduler")
	}
	want := "With 90 % of the GPUs requested, kubelets rejected " + string(row[1]) + " % of its pods"
	if !strings.Contains(text, want) {
		t.Errorf("doctor does not say %q:\n%s", want, text)
	}
}

// TestDoctorCountsRefusedShapes: time is linear in the number of different requests of refused pods, which
// tenants choose: six times the pods take six times the CPU time, or less.
func TestDoctorCountsRefusedShapes(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	const pods = 250
	once, more := s.timeOfRefused(pods), s.timeOfRefused(6*pods)
	if more > 7*once {
		t.Errorf("the time is not linear: %s for %d pods, %s for %d", once, pods, more, 6*pods)
	}
}

// timeOfRefused returns the CPU time of tandem doctor with a number of refused pods of different requests.
func (s *sick) timeOfRefused(pods int) time.Duration {
	s.t.Helper()
	var refused []corev1.Pod
	for i := range pods {
		pod := failed("team", fmt.Sprint("train-", i), "TopologyAffinityError")
		limits := corev1.ResourceList{
			"amd.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse(fmt.Sprint(i + 1)),
			corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
		pod.Spec.Containers = []corev1.Container{
			{Name: "a", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}},
		}
		refused = append(refused, pod)
	}
	s.pods.Store(&refused)
	cmd := exec.CommandContext(s.t.Context(), "/proc/self/exe", s.command()...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	output, _ := cmd.CombinedOutput() // the exit code tells that there is a finding
	if want := fmt.Sprintf("%d pods are rejected", pods); !strings.Contains(string(output), want) {
		s.t.Fatalf("want %q in\n%s", want, output)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
