// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// The VFs of a port that goes down are withdrawn: the kubelet gives them to nobody. A counter that moves
// within its limit, on another port, changes nothing.
func TestFailedPort(t *testing.T) {
	const failed, other = "0000:2a:00.0", "0000:0c:00.0"
	r := startRig(t, rig.Setup{Machine: "oci-mi300x-derived", VFsPerPF: 4, Coordinated: true})
	write := func(pf, counter, value string) {
		t.Helper()
		ports, err := filepath.Glob(r.Path("sys/bus/pci/devices/" + pf + "/infiniband/*"))
		if err != nil || len(ports) != 1 {
			t.Fatalf("RDMA devices of %s: %v, %v", pf, ports, err)
		}
		file := filepath.Join(ports[0], "ports/1/counters", counter)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(value), 0o644))
	}
	kill(t, r, rig.VF) // values from before a start are known at the start
	write(failed, "link_downed", "3")
	write(other, "port_rcv_errors", "3")
	must(t, r.Pair.RDMA.Start())
	must(t, r.WaitReady(deadline(t)))
	write(other, "port_rcv_errors", "4")
	write(failed, "link_downed", "4")
	must(t, r.Node.WaitAllocatable(deadline(t), rig.VF, r.VFs()-4))
	for id := range r.Node.Inventory(rig.VF) {
		if strings.HasPrefix(id, strings.TrimSuffix(failed, "0.0")) {
			t.Errorf("the kubelet gives %s, of a failed port", id)
		}
	}
}
