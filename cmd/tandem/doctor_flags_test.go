// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

// TestDoctorTakesFlags: settings on the kubelet's command line count like those in files.
func TestDoctorTakesFlags(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.write("kubelet/config.yaml", kubeletKind+"topologyManagerPolicy: restricted\n"+
		"memoryManagerPolicy: Static\ncpuManagerPolicy: static\n"+
		"topologyManagerPolicyOptions: {max-allowable-numa-nodes: \"no\"}\n")
	s.write("kubelet/memory_manager_state", `{"policyName":"Static","machineState":{}}`)
	s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"), "--kube-reserved=cpu=2,memory=1Gi",
		"--system_reserved", "cpu=500m", "--reserved-memory=0:memory=1124Mi;1:memory=1Gi,hugepages-1Gi=2Gi",
		"--topology-manager-policy-options=prefer-closest-numa-nodes=true")
	if found := s.findings(); len(found) > 0 {
		t.Errorf("found\n%s", doctor.Report(found))
	}
}

// TestDoctorDoesNotJudgeAmounts: the kubelet satisfies a reserved amount with whole cores if possible, CPU 0
// and its sibling 112, and assigns CPU 1 to a container. Its state is healthy and unchanged.
func TestDoctorDoesNotJudgeAmounts(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	settings := strings.Replace(healthyKubelet, "reservedSystemCPUs: \"0\"", "kubeReserved: {cpu: \"2\"}", 1)
	s.write("kubelet/config.yaml", settings)
	s.write("kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0,2-112,114-223",`+
		`"entries":{"uid":{"main":"1,113"}},"checksum":1}`)
	if found := s.findings(); len(found) > 0 {
		t.Errorf("found\n%s", doctor.Report(found))
	}
}

// TestDoctorKnowsStrictReservation: then reserved CPUs are not among the shared ones.
func TestDoctorKnowsStrictReservation(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.kubelet("reservedSystemCPUs: \"0\"\n",
		"reservedSystemCPUs: \"0\"\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n")
	check(t, s.findings(), "cpu-state", "Strictly reserved")
	s.cpuState("static", "1-223")
	if found := s.findings(); len(found) > 0 {
		t.Errorf("found\n%s", doctor.Report(found))
	}
}
