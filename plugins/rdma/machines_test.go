package rdma

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// load returns a recorded machine with this many VFs per PF, and its VFs that have an RDMA device, by PF.
func load(t testing.TB, name string, vfsPerPF int) (fs.FS, map[topology.Address][]string) {
	t.Helper()
	machine, err := machines.Load(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		t.Fatal(err)
	}
	vfs := map[topology.Address][]string{}
	for d := range tree.Devices() {
		if d.IsVF() && d.Driver != "" && len(d.RDMA) > 0 {
			vfs[d.PF] = append(vfs[d.PF], d.Address.String())
		}
	}
	return machine.FS(), vfs
}

// On every recorded machine each PF gives a pool of its VFs, and all of them together are the pool of every VF.
func TestRecordedMachines(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, vfs := load(t, name, 4)
			if len(vfs) == 0 {
				t.Skip("no VF with a driver and an RDMA device")
			}
			var list, all []string
			pfs := slices.SortedFunc(maps.Keys(vfs), topology.Address.Compare)
			for i, pf := range pfs {
				all = append(all, vfs[pf]...)
				list = append(list,
					fmt.Sprintf(`{"resourceName": "middle%d", "selectors": {"rootDevices": ["%s#1-2"]}}`, i, pf),
					fmt.Sprintf(`{"resourceName": "rest%d", "selectors": {"rootDevices": ["%s"], "isRdma": true}}`, i, pf))
			}
			pools := discover(t, sys, resources(list...))
			for i, pf := range pfs {
				middle, rest := ids(pools[2*i]), ids(pools[2*i+1])
				if len(vfs[pf]) == 4 && !slices.Equal(middle, vfs[pf][1:3]) {
					t.Errorf("VFs 1 and 2 of %s are %v; want %v", pf, middle, vfs[pf][1:3])
				}
				together := byAddress(slices.Concat(middle, rest))
				if diff := cmp.Diff(vfs[pf], together); diff != "" {
					t.Errorf("VFs of %s: %s", pf, diff)
				}
			}
			every := discover(t, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))[0]
			every.Devices = slices.DeleteFunc(every.Devices, func(d Device) bool { return d.PF == topology.Address{} })
			if diff := cmp.Diff(byAddress(all), ids(every)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// byAddress sorts IDs as pools do.
func byAddress(ids []string) []string {
	slices.SortFunc(ids, func(a, b string) int {
		x, _ := topology.ParseAddress(a)
		y, _ := topology.ParseAddress(b)
		return x.Compare(y)
	})
	return ids
}

func discover(t testing.TB, sys fs.FS, list string) []Pool {
	t.Helper()
	c, err := parseConfig("config.json", []byte(list))
	if err != nil {
		t.Fatal(err)
	}
	pools, err := poolsOf(sys, c, "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	return pools
}

// Every VF of every machine gives its own three RDMA nodes and the shared one.
func TestNodesOfRecordedMachines(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, vfs := load(t, name, 2)
			host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: t.TempDir()}
			r := &ResourceConfig{}
			seen := map[string]bool{}
			for _, its := range vfs {
				for _, id := range its {
					address, err := topology.ParseAddress(id)
					if err != nil {
						t.Fatal(err)
					}
					g := host.grant(Device{ID: id, Address: address, selector: &Selector{networkSelector: networkSelector{IsRDMA: true}}}, r)
					info := g.info["rdma"]
					if info["uverbs"] == "" || info["rdma_cm"] == "" || info["rdma_dev"] == "" || seen[info["uverbs"]] {
						t.Errorf("%s: %v", id, info)
					}
					seen[info["uverbs"]] = true
				}
			}
		})
	}
}

// The plugin as the kubelet sees it, over a socket.
func TestPluginOnSocket(t *testing.T) {
	t.Attr("parity", "sriov/options")
	t.Attr("parity", "sriov/preferred")
	t.Attr("parity", "sriov/device-id-pci")
	sys, _ := load(t, "oci-mi300x-derived", 1)
	vfs := find(t, sys, resources(`{"resourceName": "mlnx", "resourcePrefix": "nvidia.com", "selectors": {"vendors": ["15b3"], "IsRdma": true}}`), "intel.com", nil)
	log := slog.New(slog.DiscardHandler)
	host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: filepath.Join(t.TempDir(), "dp")}
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Preferred: true, Log: log}, NewPlugin("nvidia.com/mlnx", vfs, host, newRecorder(), log))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, server)
	registered := kubelettest.Await(t, kubelet.Plugins)
	if registered.Request.GetResourceName() != "nvidia.com/mlnx" || !registered.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("registered %v with %v", registered.Request, registered.Options)
	}
	list := kubelettest.Await(t, registered.Lists)
	if len(list) != 8 || list[0].GetID() != "0000:0c:00.1" || list[0].GetTopology().GetNodes()[0].GetID() != 0 || list[7].GetTopology().GetNodes()[0].GetID() != 1 {
		t.Errorf("device list %v", list)
	}
	answer, err := registered.Client.Allocate(t.Context(), &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
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

// serve runs a server for the time of a test.
func serve(t *testing.T, server *deviceplugin.Server) {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// 1016 VFs on eight PFs, the most that eight ConnectX-7 have.
func BenchmarkDiscover1016(b *testing.B) {
	sys, _ := load(b, "oci-mi300x-derived", 127)
	list := resources(
		`{"resourceName": "a", "selectors": {"rootDevices": ["0000:0c:00.0#0-63"], "linkTypes": ["ether"]}}`,
		`{"resourceName": "b", "selectors": {"isRdma": true, "pfNames": ["none"]}}`,
		`{"resourceName": "c", "selectors": {"isRdma": true}}`,
	)
	for b.Loop() {
		pools := discover(b, sys, list)
		if got := len(pools[0].Devices) + len(pools[2].Devices); got != 1016 {
			b.Fatalf("%d devices", got)
		}
	}
}

// manyVFs lays 1016 VFs out as a folder, to be read as sysfs is.
func manyVFs(b *testing.B) fs.FS {
	b.Helper()
	machine, err := machines.Load("oci-mi300x-derived", 127)
	if err != nil {
		b.Fatal(err)
	}
	root := b.TempDir()
	if err := machine.Layout(root); err != nil {
		b.Fatal(err)
	}
	return os.DirFS(root)
}

// From reading the machine to the first device list, with the files for Multus: all that is done before registration.
func BenchmarkStart1016(b *testing.B) {
	sys := manyVFs(b)
	for b.Loop() {
		vfs := find(b, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
		host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: b.TempDir()}
		plugin := NewPlugin("intel.com/a", vfs, host, newRecorder(), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(b.Context())
		err := plugin.Watch(ctx, func(list []deviceplugin.Device) {
			if len(list) != 1016 {
				b.Errorf("%d devices", len(list))
			}
			cancel()
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// What the daemon does when the machine may have changed.
func BenchmarkRescan1016(b *testing.B) {
	vfs := find(b, manyVFs(b), resources(`{"resourceName": "a", "selectors": {"isRdma": true, "linkTypes": ["ether"]}}`), "intel.com", nil)
	for b.Loop() {
		if err := vfs.scan(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocate8Of1016(b *testing.B) {
	sys := manyVFs(b)
	vfs := find(b, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`), "intel.com", nil)
	pool, _ := vfs.latest("intel.com/a")
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
