// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/podexec"
)

// recordsOf is a tenant's program that records its start.
func recordsOf(started *[]string) podexec.Program {
	return func(_ context.Context, pod string, _ []string, stdin io.Reader, stdout, _ io.Writer) int {
		*started = append(*started, pod)
		if stdin != nil {
			_, _ = io.Copy(io.Discard, stdin)
		}
		fmt.Fprint(stdout, `{"mode":"dra","notes":["\u001b]0;owned\u0007\u001b[2J all is well"]}`)
		return 0
	}
}

// pluginCommands are the commands that start programs in pods.
var pluginCommands = [][]string{
	{"status"}, {"doctor", "gpu-1"}, {"explain", "team/train-0", "--node", "gpu-1"},
}

// TestTenantsAreNotAsked: no program is started in pods that only have the daemons' labels, whatever their
// owner references.
func TestTenantsAreNotAsked(t *testing.T) {
	t.Parallel()
	s := theCluster(t)
	var started []string
	tenant := recordsOf(&started)
	s.configz["gpu-1"] = `{"kubeletconfig":{"tlsPrivateKeyFile":"/k"}}`
	s.add("tenant/a-labelled", "tandem-gpu", "gpu-1", tenant)
	s.change("tenant/a-labelled", func(p *corev1.Pod) { p.OwnerReferences = nil })
	s.add("tenant/a-forged", "tandem-gpu", "gpu-1", tenant) // with a forged owner, the release's DaemonSet
	s.change("tenant/a-forged", func(p *corev1.Pod) {
		p.OwnerReferences = s.pods["kube-system/tandem-gpu-b"].OwnerReferences
	})
	s.add("tenant/a-set", "tandem-rdma", "gpu-1", tenant) // a DaemonSet of the tenant's own
	s.daemonSet("tenant", "tandem-rdma").Spec.Template.Spec.Volumes = nil
	s.change("tenant/a-set", func(p *corev1.Pod) { p.Spec.Volumes = nil })
	s.daemonSet("tenant", "tandem-gpu").Status.CurrentNumberScheduled = 0 // Pod Security refuses its pods
	s.add("kube-system/a-debug", "tandem-gpu", "gpu-1", tenant)           // somebody's copy of a daemon's pod
	s.change("kube-system/a-debug", func(p *corev1.Pod) { p.OwnerReferences = nil })
	s.add("kube-system/a-job", "tandem-gpu", "gpu-1", tenant)
	s.change("kube-system/a-job", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
			s.daemonSet("kube-system", "tandem-gpu"),
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	})
	s.add("kube-system/a-bare", "tandem-gpu", "gpu-1", tenant)
	s.change("kube-system/a-bare", func(p *corev1.Pod) { p.Spec.Volumes = nil })
	kubeconfig := s.start()
	for _, args := range pluginCommands {
		for _, more := range [][]string{nil, {"--tandem-namespace=kube-system"}} {
			args := slices.Concat(args, more)
			// The daemons' own answers are printed; for explain they know nothing.
			if _, stdout, stderr := plugin(kubeconfig, args...); stdout == "" &&
				!strings.Contains(stderr, "ask node gpu-1: kube-system/tandem-gpu-b: tandem explain") {
				t.Errorf("%v: %s", args, stderr)
			}
		}
	}
	if len(started) > 0 {
		t.Errorf("programs were started in the tenants' pods %q", started)
	}
}
