// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Devices that a container holds, or that the kubelet counts as healthy, are known to a plugin that no longer
// finds them after its restart. Others are forgotten.
func TestListedOutlivesAPlugin(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	node, stop := start(t, dir)
	member := node.Member(gpus, device.GPU)
	member.Publish(device.Announcement{Devices: append(slices.Clone(threeGPUs.Devices[1:]), oneGPU.Devices...)})
	await(t, dir, connected(gpus))
	if _, _, err := member.Allocated(t.Context(), []string{"gpu0"}); err != nil {
		t.Fatal(err)
	}
	stop()
	again, _ := start(t, dir)
	plugins := filepath.Join(again.config.KubeletDir, "device-plugins")
	record := `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"amd.com/gpu","DeviceIDs":{"1":["gpu1"],"0":["gpu0"]}}],"RegisteredDevices":{"amd.com/gpu":["gpu2"]}}}`
	if err := errors.Join(os.Mkdir(plugins, 0o700),
		os.WriteFile(filepath.Join(plugins, "kubelet_internal_checkpoint"), []byte(record), 0o600)); err != nil {
		t.Fatal(err)
	}
	want := []device.Device{
		{ID: "gpu1", NUMA: topology.Node(1)},
		{ID: "gpu2"},
		{
			ID: "gpu0", Address: topology.Address{Bus: 1}, NUMA: topology.Node(0),
			Unit: topology.Unit{Name: "gpu0"},
		},
	}
	if diff := cmp.Diff(want, again.Listed(gpus),
		cmpopts.EquateComparable(topology.NUMANode{}, topology.Address{})); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	needed, err := again.Needed(gpus)
	if diff := cmp.Diff(map[string]bool{"gpu0": true, "gpu1": true, "gpu2": true}, needed); diff != "" ||
		err != nil {
		t.Errorf("needed (-want +got): %v\n%s", err, diff)
	}
	// The server that comes after knows what is held too, as unhealthy.
	again.Member(gpus, device.GPU).Publish(device.Announcement{})
	status := await(t, dir, connected(gpus))
	if devices := status.GetResources()[0].GetDevices(); len(devices) != 1 ||
		devices[0].GetDevice().GetHealthy() {
		t.Errorf("devices %v", devices)
	}
}

// A device that is gone before the kubelet has a checkpoint stays known to the coordinator, until the device
// has left the kubelet's list.
func TestRetired(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	node, _ := start(t, dir)
	member := node.Member(gpus, device.GPU)
	member.Publish(threeGPUs)
	await(t, dir, connected(gpus))
	member.Publish(oneGPU)
	count := func(want int) func(*api.StatusResponse) bool {
		return func(s *api.StatusResponse) bool {
			return len(s.GetResources()) == 1 && len(s.GetResources()[0].GetDevices()) == want
		}
	}
	await(t, dir, count(3))
	plugins := filepath.Join(node.config.KubeletDir, "device-plugins")
	record := `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}}}`
	if err := errors.Join(os.Mkdir(plugins, 0o700),
		os.WriteFile(filepath.Join(plugins, "kubelet_internal_checkpoint"), []byte(record), 0o600)); err != nil {
		t.Fatal(err)
	}
	node.Retired(gpus)
	await(t, dir, count(1))
}

// A run folder that is removed while the server runs is made again, and everybody meets there.
func TestRunDirIsRemoved(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	first, _ := start(t, dir)
	first.Member(gpus, device.GPU).Publish(oneGPU)
	await(t, dir, connected(gpus))
	// Again, where the node has just written a file.
	for err := os.RemoveAll(dir); err != nil; err = os.RemoveAll(dir) {
		if !errors.Is(err, syscall.ENOTEMPTY) {
			t.Fatal(err)
		}
	}
	second, _ := start(t, dir)
	second.Member(vfs, device.VF).Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true}},
	})
	await(t, dir, func(s *api.StatusResponse) bool { return connected(gpus, vfs)(s) })
}

// The errors come over the socket as sentences.
func TestExplainOverTheSocket(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	if _, err := Explain(t.Context(), dir, "team", "train", ""); err == nil ||
		!strings.Contains(err.Error(), "no answer") {
		t.Errorf("nobody serves: %v", err)
	}
	node, _ := start(t, dir)
	member := node.Member(gpus, device.GPU)
	member.Publish(oneGPU)
	await(t, dir, connected(gpus))
	_, err := Explain(t.Context(), dir, "team", "train", "")
	if want := "explain pod team/train: not among the last 256 decisions, and this kubelet " +
		"does not report"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("no such pod: %v", err)
	}
	if _, err := Explain(t.Context(), dir, "team", "", ""); err == nil ||
		!strings.Contains(err.Error(), "which pod") {
		t.Errorf("a namespace alone: %v", err)
	}
	if all, err := Explain(t.Context(), dir, "", "", ""); err != nil || len(all.GetDecisions()) != 0 {
		t.Errorf("no name, and nothing was decided: %v, %v", all, err)
	}
}
