// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// TestOneMode: the driver does not start where device plugins run, nor they where it does. There a driver
// that drains takes claims back, and prepares none.
func TestOneMode(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, _ := n.config(c)
	stop := n.start(config)
	claim := c.allocate("a", "train-0", "pair-11-00-0")
	if _, wrong := n.register().prepare(t.Context(), claim); wrong != "" {
		t.Fatal(wrong)
	}
	notHere := (*coordination.ModeError)(nil)
	_, err := coordination.Enter(t.Context(), coordination.DevicePlugin, n.run(), n.kubelet)
	if !errors.As(err, &notHere) {
		t.Errorf("device plugins beside it: %v", err)
	}
	stop()
	leave, err := coordination.Enter(t.Context(), coordination.DevicePlugin, n.run(), n.kubelet)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	driver, err := dra.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Run(t.Context()); !errors.As(err, &notHere) || notHere.Mode != coordination.DevicePlugin {
		t.Errorf("beside device plugins: %v", err)
	}
	if found, _ := filepath.Glob(filepath.Join(n.kubelet, "plugins_registry", "*")); len(found) > 0 {
		t.Errorf("it registered: %v", found)
	}
	config.Drain = true
	n.start(config)
	k := n.register()
	if _, wrong := k.prepare(t.Context(), c.allocate("b", "train-1", "pair-2f-00-0")); !strings.Contains(wrong,
		"mode of device plugins") {
		t.Errorf("prepare: %q", wrong)
	}
	if wrong := k.unprepare(t.Context(), claim); wrong != "" {
		t.Error(wrong)
	}
	holders, err := coordination.ReadClaimHolders(dra.PluginDir(n.kubelet), "")
	if err != nil || len(holders) > 0 {
		t.Errorf("held %v, %v", holders, err)
	}
}

func (n *node) write(name, content string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// TestHeldByDevicePlugins: what a living pod has from a device plugin is tainted, and not given away; what a
// pod had that has ended is free.
func TestHeldByDevicePlugins(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	n.write(kubelet.CheckpointPath(n.kubelet), `{"Data":{"PodDeviceEntries":[`+
		`{"PodUID":"old","ContainerName":"worker","ResourceName":"amd.com/gpu","DeviceIDs":{"0":["0000:11:00.0"]}},`+
		`{"PodUID":"ended","ContainerName":"worker","ResourceName":"amd.com/gpu","DeviceIDs":{"0":["0000:2f:00.0"]}},`+
		`{"PodUID":"old","ContainerName":"worker","ResourceName":"tandem.dev/rdma_vf","DeviceIDs":{"0":["0000:41:00.2"]}}`+
		`],"RegisteredDevices":{}}}`)
	stop, err := podsapi.Serve(n.kubelet, func() []corev1.Pod {
		return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "old-0", UID: "old"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	config, _ := n.config(c)
	n.start(config)
	k := n.register()
	devices := c.awaitPublished(complete)
	for name, want := range map[string]bool{
		"gpu-11-00-0": true, "pair-11-00-0": true, "gpu-2f-00-0": false, "pair-2f-00-0": false,
		"vf-41-00-2": true,
	} {
		taints := devices[name].Taints
		if got := len(taints) == 1 && taints[0].Key == pool.TaintDevicePlugin &&
			taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule; got != want {
			t.Errorf("%s: taints %v", name, taints)
		}
	}
	if _, wrong := k.prepare(t.Context(), c.allocate("a", "train-0", "pair-11-00-0")); !strings.Contains(wrong,
		"team/old-0") {
		t.Errorf("it is given away: %q", wrong)
	}
	for _, r := range n.status(t).GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetDevice().GetId() == "0000:11:00.0" && d.GetOwner().GetPod() != "old-0" {
				t.Errorf("owner %v", d.GetOwner())
			}
		}
	}
}
