// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/golden"
)

// TestStatusOfMachines: the printed status of recorded machines in all states.
func TestStatusOfMachines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, machine string
		perPF         int
		change        func(gpus, vfs *api.Resource, a *api.StatusResponse)
		kubelet       string // its registered resources; "" for an absent kubelet
		coloured      string
	}{
		{"free", "oci-mi300x-derived", 4, nil, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up"},
		{"used", "oci-mi300x-derived", 4, func(gpus, vfs *api.Resource, a *api.StatusResponse) {
			g, v := gpus.GetDevices(), vfs.GetDevices()
			give("team/train-0/worker", g[0], g[1], v[0], v[4])
			give("team/train-1/worker", g[2], g[3], v[8], v[1]) // one VF is on another switch
			give("infer/one/main", v[2])
			give("infer/two/main", v[3])
			g[4].Device.Healthy = false
			ended := &api.Owner{Namespace: "team", Pod: "over", Container: "worker"}
			v[16].Ended, g[5].Ended = ended, ended
			a.Plan = &api.Plan{Devices: map[string]*api.DeviceList{
				vfs.GetName(): {Ids: []string{v[24].GetDevice().GetId()}},
			}}
		}, "amd.com/gpu", "green kubelet up, red unhealthy, yellow DEGRADED, yellow NOT REGISTERED"},
		{"stale", "oci-mi300x-derived", 1, func(_, vfs *api.Resource, a *api.StatusResponse) {
			vfs.Connected = false
			a.Peers = a.GetPeers()[:1]
		}, "", "red KUBELET DOWN, red kubelet down, yellow STALE"},
		{"no-numa", "nv-a100pcie-cx6dx-vf-partial", 0, nil, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up"},
		{"no-switch", "nv-h200-vm-flat", 1, func(gpus, vfs *api.Resource, _ *api.StatusResponse) {
			give("team/train-0/worker", gpus.GetDevices()[0], vfs.GetDevices()[0])
		}, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up, yellow DEGRADED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			answer := onMachine(t, c.machine, c.perPF)
			if c.change != nil {
				c.change(answer.GetResources()[0], answer.GetResources()[1], answer)
			}
			root := t.TempDir()
			plugins{status: answer}.run(t, filepath.Join(root, "run"))
			kubeletDir := filepath.Join(root, "kubelet")
			serveKubelet(t, kubeletDir, answer, strings.Fields(c.kubelet))
			ask := []string{"status", "--run-dir", filepath.Join(root, "run"), "--kubelet-dir", kubeletDir}
			var words colours
			for file, format := range map[string]string{"": "table", "-wide": "wide"} {
				shown := words.strip(succeed(t, append(ask, "-o", format, "--color=always")...))
				golden.Check(t, "testdata/status-"+c.name+file+".txt", strings.ReplaceAll(shown, root, "ROOT"))
			}
			words.check(t, c.coloured)
			var s coordinator.Status
			if err := json.Unmarshal([]byte(succeed(t, append(ask, "-o", "json")...)), &s); err != nil {
				t.Fatal(err)
			}
			if s.Kubelet == nil || (s.Kubelet.State == "up") != (c.kubelet != "") ||
				s.Totals.GPUs.All != len(answer.GetResources()[0].GetDevices()) {
				t.Errorf("JSON has %+v, %+v", s.Kubelet, s.Totals)
			}
		})
	}
}

// serveKubelet creates a kubelet's folder, and a kubelet with the devices of each registered resource, or
// none.
func serveKubelet(t *testing.T, dir string, answer *api.StatusResponse, resources []string) {
	t.Helper()
	devices := idsOf(answer)
	maps.DeleteFunc(devices, func(name string, _ []string) bool { return !slices.Contains(resources, name) })
	if len(resources) > 0 {
		podResources{devices: devices}.run(t, dir)
	} else if err := os.MkdirAll(filepath.Join(dir, "pod-resources"), 0o755); err != nil {
		t.Fatal(err)
	}
}
