// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// The plugin as the kubelet sees it, over a socket.
func TestPluginOnSocket(t *testing.T) {
	t.Attr("parity", "sriov/options")
	t.Attr("parity", "sriov/preferred")
	t.Attr("parity", "sriov/device-id-pci")
	t.Attr("parity", "all/id-stability")
	sys := machines.Sys(t, "oci-mi300x-derived", 1)
	vfs := find(t, sys,
		resources(`{"resourceName": "mlnx", "resourcePrefix": "nvidia.com", "selectors": {"vendors": ["15b3"], "IsRdma": true}}`),
		"intel.com", nil)
	log := slog.New(slog.DiscardHandler)
	host := Host{
		Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: filepath.Join(t.TempDir(), "dp"),
	}
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Preferred: true, Log: log},
		NewPlugin("nvidia.com/mlnx", vfs, host, newRecorder(), log))
	if err != nil {
		t.Fatal(err)
	}
	runs(t, server.Run)
	registered := kubelettest.Await(t, kubelet.Plugins)
	if registered.Request.GetResourceName() != "nvidia.com/mlnx" ||
		!registered.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("registered %v with %v", registered.Request, registered.Options)
	}
	list := kubelettest.Await(t, registered.Lists)
	if len(list) != 8 || list[0].GetID() != "0000:0c:00.1" || list[0].GetTopology().GetNodes()[0].GetID() != 0 ||
		list[7].GetTopology().GetNodes()[0].GetID() != 1 {
		t.Errorf("device list %v", list)
	}
	answer, err := registered.Client.Allocate(t.Context(),
		&v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
			{DevicesIds: []string{"0000:0c:00.1", "0000:2a:00.1"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.GetContainerResponses()[0]
	if got.GetEnvs()["PCIDEVICE_NVIDIA_COM_MLNX"] != "0000:2a:00.1,0000:0c:00.1" || len(got.GetDevices()) != 7 {
		t.Errorf("answer %v", got)
	}
}

// manyVFs lays 1016 VFs out as a folder, to be read as sysfs is.
func manyVFs(b *testing.B) fs.FS {
	b.Helper()
	root := b.TempDir()
	if err := os.CopyFS(root, machines.Sys(b, "oci-mi300x-derived", 127)); err != nil {
		b.Fatal(err)
	}
	return os.DirFS(root)
}

func BenchmarkAllocate8Of1016(b *testing.B) {
	sys := manyVFs(b)
	vfs := find(b, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	pool, _ := vfs.latestPool("intel.com/a")
	host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: b.TempDir()}
	plugin := NewPlugin("intel.com/a", vfs, host, newRecorder(), slog.New(slog.DiscardHandler))
	var eight []string
	for i := range 8 {
		eight = append(eight, pool.Devices[i*127].ID)
	}
	var worst time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := plugin.Allocate(b.Context(), eight); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(start))
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
}
