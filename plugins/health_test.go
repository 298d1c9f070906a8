// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// counter writes a counter of the RDMA port of a PF in place, as the kernel does.
func (n *node) counter(t *testing.T, pf, name, value string) {
	t.Helper()
	device, err := filepath.Glob(filepath.Join(n.root, "sys/bus/pci/devices", pf, "infiniband/*"))
	if err != nil || len(device) != 1 {
		t.Fatalf("RDMA devices of %s: %v, %v", pf, device, err)
	}
	file := filepath.Join(device[0], "ports/1/counters", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A port with dropped packets is passed over by the next decision, and a failed one is withdrawn; the daemons
// are the built ones.
func TestHealthSteers(t *testing.T) {
	const degraded, failed = "0000:0c:00.0", "0000:2a:00.0"
	n := newNode(t, "oci-mi300x-derived", 4)
	for _, pf := range []string{degraded, failed} {
		n.counter(t, pf, "link_downed", "3")
		n.counter(t, pf, "port_rcv_errors", "3")
	}
	n.start(t, "tandem-gpu")
	n.start(t, "tandem-rdma")
	for range 2 {
		n.await(t)
	}
	on := func(pf string) func(string) bool {
		return func(id string) bool { return strings.HasPrefix(id, strings.TrimSuffix(pf, "0.0")) }
	}
	first, err := n.plugins[gpus].Prefer(t.Context(), n.ids[gpus], nil, 1)
	if err != nil || first[0] != "0000:11:00.0" {
		t.Fatalf("at first %v, %v", first, err)
	}
	n.counter(t, degraded, "port_rcv_errors", "9999")
	n.counter(t, failed, "link_downed", "4")
	for withdrawn := 0; withdrawn == 0; { // degraded ones are in the same announcement
		for _, d := range kubelettest.Await(t, n.plugins[vfs].Lists) {
			if d.GetHealth() != "Healthy" && !on(failed)(d.GetID()) {
				t.Fatalf("%s is %s", d.GetID(), d.GetHealth())
			} else if d.GetHealth() != "Healthy" {
				withdrawn++
			}
		}
	}
	n.pods.begin("pod")
	chosen, err := n.plugins[vfs].Prefer(t.Context(), n.ids[vfs], nil, 1)
	if err != nil || slices.ContainsFunc(chosen, on(degraded)) || slices.ContainsFunc(chosen, on(failed)) {
		t.Errorf("chosen %v, %v", chosen, err)
	}
}
