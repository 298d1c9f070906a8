// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"os"
	"syscall"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// TestRenamedOnADrainedNode: after a rename no source tells that the pods have ended, and no pod comes that
// makes the kubelet write its checkpoint anew. The steps of docs/troubleshoot.md free the devices.
func TestRenamedOnADrainedNode(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.flags = append(n.flags, "--intent=podresources")
	const renamed = "nvidia.com/renamed"
	runBoth := func() {
		t.Helper()
		n.daemons = nil
		for _, name := range []string{"tandem-gpu", "tandem-rdma"} {
			n.start(t, name)
			n.await(t)
		}
	}
	stopBoth := func() {
		t.Helper()
		for _, daemon := range n.daemons {
			daemon.Stop(t, syscall.SIGINT)
		}
	}
	runBoth()
	n.admit(t, 0)
	held := n.pods.last.GetContainers()[0].GetDevices()[1].GetDeviceIds()[0]
	stopBoth()
	n.configure(t, "renamed")
	runBoth()
	if n.health[renamed][held] != v1beta1.Unhealthy {
		t.Errorf("%s is %s although nobody has told of the pod's end", held, n.health[renamed][held])
	}
	if err := os.Remove(kubelet.CheckpointPath(n.dir)); err != nil {
		t.Fatal(err)
	}
	n.pods.begin("none")
	n.record(t, "none") // the kubelet has started
	stopBoth()
	runBoth()
	if n.health[renamed][held] != v1beta1.Healthy {
		t.Errorf("%s of a drained node is %s", held, n.health[renamed][held])
	}
	stopBoth()
}
