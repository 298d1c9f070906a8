package rdma

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
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

// On every recorded machine a pool of RDMA VFs holds every VF and no PF, and each VF is found through its PF alone.
func TestRecordedMachines(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, vfs := load(t, name, 4)
			if len(vfs) == 0 {
				t.Skip("no VF with a driver and an RDMA device")
			}
			var all []string
			for pf, its := range vfs {
				all = append(all, its...)
				pools := discover(t, sys, resources(fmt.Sprintf(`{"resourceName": "a", "selectors": {"rootDevices": ["%s"], "isRdma": true}}`, pf)))
				if diff := cmp.Diff(its, ids(pools[0])); diff != "" {
					t.Errorf("VFs of %s: %s", pf, diff)
				}
				pools = discover(t, sys, resources(fmt.Sprintf(`{"resourceName": "a", "selectors": {"rootDevices": ["%s#1-2"]}}`, pf)))
				if diff := cmp.Diff(its[1:min(3, len(its))], ids(pools[0])); diff != "" && name != "nv-a100pcie-cx6dx-vf-partial" {
					t.Errorf("VFs 1 and 2 of %s: %s", pf, diff)
				}
			}
			byAddress(all)
			pools := discover(t, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true, "pfNames": []}}`))
			vfsOnly := slices.DeleteFunc(pools[0].Devices, func(d Device) bool { return d.PF == topology.Address{} })
			if diff := cmp.Diff(all, ids(Pool{Devices: vfsOnly})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func byAddress(ids []string) {
	slices.SortFunc(ids, func(a, b string) int {
		x, _ := topology.ParseAddress(a)
		y, _ := topology.ParseAddress(b)
		return x.Compare(y)
	})
}

func discover(t testing.TB, sys fs.FS, list string) []Pool {
	t.Helper()
	c, err := parseConfig("config.json", []byte(list))
	if err != nil {
		t.Fatal(err)
	}
	pools, err := Discover(sys, c, "intel.com")
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
					g := host.grant(Device{ID: id, selector: &Selector{IsRDMA: true}}, r)
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
	sys, _ := load(t, "oci-mi300x-derived", 1)
	pools := discover(t, sys, resources(`{"resourceName": "mlnx", "resourcePrefix": "nvidia.com", "selectors": {"vendors": ["15b3"], "IsRdma": true}}`))
	log := slog.New(slog.DiscardHandler)
	host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: filepath.Join(t.TempDir(), "dp")}
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Preferred: true, Log: log}, NewPlugin(pools[0], host, newRecorder(), log))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, server)
	registered := kubelettest.Await(t, kubelet.Plugins)
	if registered.Request.GetResourceName() != "nvidia.com/mlnx" || !registered.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("registered %v with %v", registered.Request, registered.Options)
	}
	list := kubelettest.Await(t, registered.Lists).GetDevices()
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

// laidOut is the users' node as a folder, with this many VFs per PF.
func laidOut(b *testing.B, vfsPerPF int) fs.FS {
	b.Helper()
	machine, err := machines.Load("oci-mi300x-derived", vfsPerPF)
	if err != nil {
		b.Fatal(err)
	}
	root := filepath.Join(b.TempDir(), "sys")
	if err := machine.Layout(root); err != nil {
		b.Fatal(err)
	}
	return os.DirFS(root)
}

// 1016 VFs on eight PFs, the most that eight ConnectX-7 have.
func BenchmarkDiscover1016(b *testing.B) {
	sys := laidOut(b, 127)
	c, err := parseConfig("config.json", []byte(resources(`{"resourceName": "a", "selectors": {"pfNames": ["none", "ens1#0-3"], "isRdma": true}}`, `{"resourceName": "b", "selectors": {"isRdma": true, "linkTypes": ["ether"]}}`)))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		pools, err := Discover(sys, c, "intel.com")
		if err != nil || len(pools[1].Devices) != 1016 {
			b.Fatalf("%d devices, %v", len(pools[1].Devices), err)
		}
	}
}

func BenchmarkAllocate8Of1016(b *testing.B) {
	sys := laidOut(b, 127)
	pool := discover(b, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))[0]
	host := Host{Sys: sys, Dev: devices("infiniband/rdma_cm"), DevinfoDir: b.TempDir()}
	plugin := NewPlugin(pool, host, newRecorder(), slog.New(slog.DiscardHandler))
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
