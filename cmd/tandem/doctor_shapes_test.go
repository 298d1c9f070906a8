// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// offering answers as a tandem-rdma with these VFs.
type offering struct {
	plugins
	vfs  []*api.DeviceStatus
	away bool
}

func (o offering) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{Resources: []*api.Resource{
		{Name: "amd.com/gpu", Kind: "gpu", Connected: true},
		{Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: !o.away, Devices: o.vfs},
		{Name: "tandem.dev/again", Kind: "vf", Connected: !o.away, Devices: o.vfs},
	}}, nil
}

// offer runs a tandem-rdma with all VFs of the machine, by default without NUMA nodes.
func (s *sick) offer(node func(bus string) *uint32, away bool) {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*/physfn"))
	s.check(err)
	gone := &api.Device{Id: "0000:0c:00.7", Address: "0000:0c:00.7", Healthy: true}
	o := offering{away: away, vfs: []*api.DeviceStatus{{Device: gone}}}
	for _, function := range functions {
		address := filepath.Base(filepath.Dir(function))
		o.vfs = append(o.vfs, &api.DeviceStatus{
			Device: &api.Device{Id: address, Address: address, Healthy: true, Numa: node(address[5:7])},
		})
	}
	serveAs(s.t, s.path("run"), o)
	answer, err := o.Status(s.t.Context(), nil)
	s.check(err)
	s.remove("kubelet/pod-resources")
	servePodResources(s.t, s.path("kubelet"), allocatable{devices: idsOf(answer)})
}

func noNode(string) *uint32 { return nil }

// socket returns the NUMA node on the machine of the shape tests.
func socket(bus string) *uint32 {
	node := uint32(0)
	if bus >= "80" {
		node = 1
	}
	return &node
}

// TestDoctorAsksTheRunningPlugin: without a configuration the pools are those of the running tandem-rdma.
func TestDoctorAsksTheRunningPlugin(t *testing.T) {
	t.Parallel()
	sys := sysfs(t, "oci-mi300x-derived", 4)
	for name, test := range map[string]struct {
		node           func(string) *uint32
		away           bool
		severity, seen string
		findings       string
	}{
		"without nodes": {noNode, false, "", "", ""},
		"with nodes":    {socket, false, string(doctor.Error), "VFs: 16 on node 0, 16 on node 1", "refused-shapes"},
		"away": {noNode, true, string(doctor.Unknown),
			"no --config, and no tandem-rdma is running: assumes that the VFs of all NICs",
			"numa-node refused-shapes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sys)
			s.with("--config", "")
			s.offer(test.node, test.away)
			if test.away {
				s.write(s.device(ociGPU0, "numa_node"), "-1\n")
			}
			findings := s.findings()
			if test.severity == "" && len(findings) > 0 {
				t.Errorf("found\n%s", doctor.Report(findings))
			}
			if test.severity == "" {
				return
			}
			check(t, findings, test.findings, test.seen)
			if last := findings[len(findings)-1]; string(last.Severity) != test.severity {
				t.Errorf("it is %s:\n%s", last.Severity, doctor.Report(findings))
			}
		})
	}
}

// TestDoctorKnowsTheCPUs: if the devices fit without the CPUs, the CPUs are named as the cause, and the
// suggested numbers fit.
func TestDoctorKnowsTheCPUs(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	findings := func(cpus string) []doctor.Finding {
		args := s.args
		defer func() { s.args = args }()
		s.with("--cpus", cpus)
		return s.findings()
	}
	for cpus, shapes := range map[string]string{"4": "5+5 to 8+8", "113": "1+1 to 4+4"} { // a socket has 112
		found := findings(cpus)
		check(t, found, "refused-shapes", "Containers that request "+shapes+" with "+cpus+" CPUs are rejected")
		text := string(doctor.Report(found))
		if found[0].Severity != doctor.Error || strings.Contains(text, "excludeTopology") ||
			!strings.Contains(text, "CPUs for containers: 111 on node 0, 112 on node 1") {
			t.Errorf("%s CPUs:\n%s", cpus, text)
		}
		fits := regexp.MustCompile(regexp.QuoteMeta(shapes) + `: admitted with (\d+)-(\d+) CPUs`).
			FindStringSubmatch(text)
		if fits == nil {
			t.Fatalf("%s CPUs: which number is admitted?\n%s", cpus, text)
		}
		for _, bound := range fits[1:] {
			if again := doctor.Report(findings(bound)); strings.Contains(string(again), shapes) {
				t.Errorf("%s CPUs are to be admitted:\n%s", bound, again)
			}
		}
	}
}

// TestDoctorFixesWhatThereIs: leaving out NUMA nodes is not suggested if they are already left out.
func TestDoctorFixesWhatThereIs(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.write(s.device(ociGPU0, "numa_node"), "-1\n")
	found := s.findings()
	check(t, found, "numa-node refused-shapes", "1 without a node, 3 on node 0, 4 on node 1")
	if text := string(doctor.Report(found)); strings.Contains(text, "excludeTopology") ||
		!strings.Contains(text, "a NUMA node for every GPU") {
		t.Errorf("found\n%s", text)
	}
}
