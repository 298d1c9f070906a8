// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/functions"
)

// recorder is a coordinator that keeps what it is told. Its order is the reverse of the kubelet's.
type recorder struct {
	to        slog.Attr // the container that has what was allocated
	published chan device.Announcement
	awaited   atomic.Int32 // that it takes over what was published
	available []string
	vanished  []string
	allocated [][]string
	returned  [][]string
	failed    [][]string
	paired    []string                               // pairs files
	writes    func(file string, vfs []pairs.VF) bool // nil where no coordinator does
	served    []pairs.Served
	refusal   error
}

// choose answers a question as the kubelet's side of a plugin does: by the coordinator, else alone.
func choose(
	t testing.TB, p deviceplugin.Preferrer, resource string, available, mustInclude []string, size uint32,
) []string {
	t.Helper()
	q := &api.PreferRequest{Resource: resource, Available: available, MustInclude: mustInclude, Size: size}
	chosen, err := p.Prefer(t.Context(), q)
	if err != nil {
		return p.Alone(q, err)
	}
	return chosen
}

func newRecorder() *recorder { return &recorder{published: make(chan device.Announcement, 16)} }

func (r *recorder) Publish(a device.Announcement) { r.published <- a }

func (r *recorder) AwaitTaken(context.Context) { r.awaited.Add(1) }

func (r *recorder) List(all []device.Device) ([]device.Device, <-chan struct{}) { return all, nil }

func (r *recorder) Prefer(_ context.Context, q *api.PreferRequest) ([]string, error) {
	return r.Alone(q, nil), nil
}

func (r *recorder) Alone(q *api.PreferRequest, _ error) []string {
	r.available, r.vanished = q.GetAvailable(), q.GetVanished()
	return r.available[:min(int(q.GetSize()), len(r.available))]
}

func (r *recorder) StartAllocate(_ context.Context, ids []string) *coordination.Allocate {
	return &coordination.Allocate{IDs: ids}
}

func (r *recorder) Allocated(_ context.Context, a *coordination.Allocate) ([]string, slog.Attr, error) {
	if r.refusal != nil {
		return nil, slog.Attr{}, r.refusal
	}
	r.allocated = append(r.allocated, a.IDs)
	order := slices.Clone(a.IDs)
	slices.Reverse(order)
	return order, r.to, nil
}

func (r *recorder) Returned(_ context.Context, a *coordination.Allocate, failed bool) {
	if failed {
		r.failed = append(r.failed, a.IDs)
	} else {
		r.returned = append(r.returned, a.IDs)
	}
}

func (r *recorder) Pair(_ context.Context, vfs []pairs.VF, file string) ([]pairs.Served, bool) {
	r.paired = append(r.paired, file)
	return r.served, r.writes != nil && r.writes(file, vfs)
}

// devices are device nodes: names below /dev.
func devices(names ...string) fstest.MapFS {
	dev := fstest.MapFS{}
	for _, name := range names {
		dev[name] = &fstest.MapFile{}
	}
	return dev
}

// offered makes the plugin of the first resource of a configuration.
func offered(t *testing.T, s functions.Sysfs, dev fstest.MapFS, prefix, list string) (*Plugin, *recorder) {
	t.Helper()
	vfs := find(t, s.FS(), list, prefix, nil)
	member := newRecorder()
	host := Host{Sys: s.FS(), Dev: dev, DevinfoDir: filepath.Join(t.TempDir(), "devinfo", "dp")}
	return NewPlugin(vfs.Names()[0], vfs, host, member, slog.New(slog.DiscardHandler)), member
}

// respond allocates, and returns the edits as the kubelet gets them.
func respond(ctx context.Context, p *Plugin, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	edits, err := p.Allocate(ctx, ids)
	return deviceplugin.Response(edits), err
}

// nodes prints device specs, one a line.
func nodes(response *v1beta1.ContainerAllocateResponse) []string {
	var lines []string
	for _, d := range response.Devices {
		lines = append(lines, d.HostPath+" "+d.ContainerPath+" "+d.Permissions)
	}
	return lines
}

// rdmaVF is the machine of the golden answer: VF 0000:86:02.3 with RDMA device mlx5_5, VF index 19.
func rdmaVF() functions.Sysfs {
	s := functions.New()
	s.Function("0000:86:00.0", functions.Facts{"netdev": "ens1", "sriov_numvfs": "1", "rdma": "mlx5_0"})
	s.Symlink(functions.Dir("0000:86:00.0")+"/virtfn0", "../0000:86:02.3")
	s.Function("0000:86:02.3", functions.Facts{"pf": "0000:86:00.0", "netdev": "ens1v0", "rdma": "mlx5_5"})
	return s
}

const rdmaPool = `{"resourceName": "sriov-rdma-vf", "selectors": {"isRdma": true}}`

// The bytes that the stock plugin gives for the same device.
func TestAllocateGolden(t *testing.T) {
	t.Attr("parity", "sriov/env-pcidevice")
	t.Attr("parity", "sriov/env-info")
	t.Attr("parity", "sriov/dev-rdma")
	t.Attr("parity", "sriov/devinfo-file")
	p, member := offered(t, rdmaVF(), devices("infiniband/rdma_cm"), "nvidia.com", resources(rdmaPool))
	got, err := respond(t.Context(), p, []string{"0000:86:02.3"})
	if err != nil {
		t.Fatal(err)
	}
	if len(member.returned) != 1 || len(member.failed) > 0 {
		t.Errorf("the coordinator was told of %v as returned, %v as failed", member.returned, member.failed)
	}
	envs := map[string]string{
		"PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF":      `0000:86:02.3`,
		"PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF_INFO": `{"0000:86:02.3":{"generic":{"deviceID":"0000:86:02.3"},"rdma":{"issm":"/dev/infiniband/issm5","rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_5","umad":"/dev/infiniband/umad5","uverbs":"/dev/infiniband/uverbs5"}}}`,
	}
	if diff := cmp.Diff(envs, got.Envs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"/dev/infiniband/issm5 /dev/infiniband/issm5 rw",
		"/dev/infiniband/umad5 /dev/infiniband/umad5 rw",
		"/dev/infiniband/uverbs5 /dev/infiniband/uverbs5 rw",
		"/dev/infiniband/rdma_cm /dev/infiniband/rdma_cm rw",
	}, nodes(got)); diff != "" {
		t.Error(diff)
	}
	if len(got.Mounts)+len(got.Annotations)+len(got.CdiDevices) > 0 {
		t.Errorf("more than environment and devices: %v", got)
	}
	file := filepath.Join(p.host.DevinfoDir, "nvidia.com-sriov-rdma-vf-0000:86:02.3-device.json")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:86:02.3","rdma-device":"mlx5_5"}}`,
		string(content),
	); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o444 {
		t.Errorf("device-info file has mode %v, %v; want 0444", info.Mode(), err)
	}
}

// What a container gets beside the IDs, by kind of device and resource.
func TestAllocateAnswers(t *testing.T) {
	t.Attr("parity", "sriov/env-info")
	t.Attr("parity", "sriov/dev-rdma")
	t.Attr("parity", "sriov/dev-vfio")
	t.Attr("parity", "sriov/dev-uio")
	t.Attr("parity", "sriov/dev-vhost")
	t.Attr("parity", "sriov/dev-vdpa")
	t.Attr("parity", "sriov/additionalInfo")
	const id = "0000:85:00.0"
	function := func(given functions.Facts) functions.Sysfs {
		s := functions.New()
		s.Function(id, given)
		return s
	}
	vdpa := func(driver, node string) functions.Sysfs {
		s := function(nil)
		s.VDPA(id, "vdpa3", driver, node)
		return s
	}
	two := function(functions.Facts{"rdma": "mlx5_10"})
	two.RDMA(id, "mlx5_9", "9")
	two.Write(functions.Dir(id)+"/infiniband_mad/umad11/ibdev", "mlx5_10")
	two.Write(functions.Dir(id)+"/infiniband_mad/umad9/ibdev", "mlx5_9")
	two.Write(functions.Dir(id)+"/infiniband_cm/ucm3/ibdev", "mlx5_10")
	uio := function(functions.Facts{"driver": "igb_uio"})
	uio.Write(functions.Dir(id)+"/uio/uio1/name", "igb_uio")
	noiommu := function(functions.Facts{"driver": "vfio-pci", "iommu": "31"})
	noiommu.Write("kernel/iommu_groups/31/name", "vfio-noiommu")
	for _, c := range []struct {
		name     string
		sys      functions.Sysfs
		dev      fstest.MapFS
		resource string
		info     string
		nodes    []string
	}{
		{"a plain netdev", function(nil), devices("infiniband/rdma_cm"), `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"}}`, nil},
		{"isRdma of no interest", function(functions.Facts{"rdma": "mlx5_1"}), nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"}}`, nil},
		{"no rdma_cm", function(functions.Facts{"rdma": "mlx5_1"}), nil,
			`{"resourceName": "a", "selectors": {"isRdma": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"rdma":{"issm":"/dev/infiniband/issm1","rdma_dev":"mlx5_1","umad":"/dev/infiniband/umad1","uverbs":"/dev/infiniband/uverbs1"}}`,
			[]string{"/dev/infiniband/issm1", "/dev/infiniband/umad1", "/dev/infiniband/uverbs1"}},
		{"two RDMA devices, two ports, an old kernel", two, devices("infiniband/rdma_cm"),
			`{"resourceName": "a", "selectors": {"isRdma": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"rdma":{"issm":"/dev/infiniband/issm9","rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_10","umad":"/dev/infiniband/umad9","uverbs":"/dev/infiniband/uverbs9"}}`,
			[]string{"/dev/infiniband/ucm3", "/dev/infiniband/issm10", "/dev/infiniband/umad10",
				"/dev/infiniband/umad11", "/dev/infiniband/uverbs10", "/dev/infiniband/rdma_cm", "/dev/infiniband/issm9",
				"/dev/infiniband/umad9", "/dev/infiniband/uverbs9"}},
		{"the RDMA device is in a container", func() functions.Sysfs {
			s := function(nil)
			s.Write(functions.Dir(id)+"/mlx5_core.rdma.0/uevent", "")
			return s
		}(), devices("infiniband/rdma_cm"),
			`{"resourceName": "a", "selectors": {"isRdma": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"rdma":{}}`, nil},
		{"vfio", function(functions.Facts{"driver": "vfio-pci", "iommu": "31"}), nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vfio":{"dev-mount":"/dev/vfio/31","mount":"/dev/vfio/vfio"}}`,
			[]string{"/dev/vfio/vfio", "/dev/vfio/31"}},
		{"vfio without an IOMMU", noiommu, nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vfio":{"dev-mount":"/dev/vfio/31","mount":"/dev/vfio/vfio"}}`,
			[]string{"/dev/vfio/vfio", "/dev/vfio/noiommu-31 /dev/vfio/31 rw"}},
		{"vfio without a group", function(functions.Facts{"driver": "vfio-pci"}), nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vfio":{"mount":"/dev/vfio/vfio"}}`, []string{"/dev/vfio/vfio"}},
		{"uio", uio, nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"uio":{"mount":"/dev/uio1"}}`, []string{"/dev/uio1"}},
		{"uio without a device", function(functions.Facts{"driver": "uio"}), nil, `{"resourceName": "a"}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"uio":{}}`, nil},
		{"vhost", function(nil), devices("vhost-net", "net/tun"),
			`{"resourceName": "a", "selectors": {"needVhostNet": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}}`,
			[]string{"/dev/vhost-net", "/dev/net/tun"}},
		{"vhost without tun", function(nil), devices("vhost-net"),
			`{"resourceName": "a", "selectors": {"needVhostNet": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}}`,
			nil},
		{"no vhost", function(nil), devices("net/tun"),
			`{"resourceName": "a", "selectors": {"needVhostNet": true}}`,
			`{"generic":{"deviceID":"0000:85:00.0"}}`, nil},
		{"vhost vDPA", vdpa("vhost_vdpa", "vhost-vdpa-7"), nil,
			`{"resourceName": "a", "selectors": {"vdpaType": "vhost"}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vdpa":{"mount":"/dev/vhost-vdpa-7"}}`,
			[]string{"/dev/vhost-vdpa-7"}},
		{"virtio vDPA", vdpa("virtio_vdpa", ""), nil, `{"resourceName": "a", "selectors": {"vdpaType": "virtio"}}`,
			`{"generic":{"deviceID":"0000:85:00.0"},"vdpa":{}}`, nil},
		{"additionalInfo", function(nil), nil,
			`{"resourceName": "a", "additionalInfo": {"*": {"token": "x<y", "mtu": "9000"}, "0000:85:00.0": {"mtu": "1500"}, "0000:85:00.1": {"mtu": "1"}}}`,
			`{"extra":{"mtu":"1500","token":"x\u003cy"},"generic":{"deviceID":"0000:85:00.0"}}`, nil},
		{"empty additionalInfo", function(nil), nil, `{"resourceName": "a", "additionalInfo": {}}`,
			`{"extra":{},"generic":{"deviceID":"0000:85:00.0"}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := offered(t, c.sys, c.dev, "intel.com", resources(c.resource))
			got, err := respond(t.Context(), p, []string{id})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(`{"0000:85:00.0":`+c.info+`}`, got.Envs["PCIDEVICE_INTEL_COM_A_INFO"]); diff != "" {
				t.Error(diff)
			}
			var want []string
			for _, node := range c.nodes {
				if !slices.Contains([]byte(node), ' ') {
					node = node + " " + node + " rw"
				}
				want = append(want, node)
			}
			if diff := cmp.Diff(want, nodes(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A sub-function has its own name for an ID; what the configuration says of its function counts for it, and
// Multus knows it without a file.
func TestAllocateSubfunction(t *testing.T) {
	t.Attr("parity", "sriov/device-id-aux")
	p, _ := offered(t, functions.Example(), devices("infiniband/rdma_cm"), "nvidia.com",
		resources(`{"resourceName": "bf2_sf",
		"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "isRdma": true}, "additionalInfo": {"0000:84:00.0": {"k": "v"}}}`))
	got, err := respond(t.Context(), p, []string{"mlx5_core.sf.2"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"PCIDEVICE_NVIDIA_COM_BF2_SF": "mlx5_core.sf.2",
		"PCIDEVICE_NVIDIA_COM_BF2_SF_INFO": `{"mlx5_core.sf.2":{"extra":{"k":"v"},"generic":{"deviceID":"mlx5_core.sf.2"},` +
			`"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_70","uverbs":"/dev/infiniband/uverbs70"}}}`,
	}, got.Envs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/dev/infiniband/uverbs70 /dev/infiniband/uverbs70 rw",
		"/dev/infiniband/rdma_cm /dev/infiniband/rdma_cm rw"}, nodes(got)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(p.host.DevinfoDir); err == nil {
		t.Error("there is a device-info folder")
	}
}

// Of a vDPA device Multus is told another thing.
func TestVDPADevinfo(t *testing.T) {
	for kind, want := range map[string]string{
		"vhost":  `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"0000:81:00.1"}}`,
		"virtio": `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa1","driver":"virtio","pci-address":"0000:81:00.2"}}`,
	} {
		p, _ := offered(t, functions.Example(), nil, "intel.com",
			resources(`{"resourceName": "a", "selectors": {"vdpaType": "`+kind+`"}}`))
		pool, _ := p.vfs.latestPool(p.name)
		if _, err := p.Allocate(t.Context(), ids(pool)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(p.host.DevinfoPath("intel.com/a", pool.Devices[0].ID))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(content)); diff != "" {
			t.Error(diff)
		}
	}
}

// The list of IDs and the device nodes follow the coordinator's order; shared nodes are there once.
func TestAllocateOrder(t *testing.T) {
	t.Attr("parity", "sriov/env-order")
	t.Attr("parity", "sriov/multus-order")
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	p, member := offered(t, s, devices("infiniband/rdma_cm"), "openshift.io",
		resources(`{"resourceName": "vf_pool", "selectors": {"isRdma": true}}`))
	got, err := respond(t.Context(), p, []string{"0000:81:00.1", "0000:81:00.3"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("0000:81:00.3,0000:81:00.1", got.Envs["PCIDEVICE_OPENSHIFT_IO_VF_POOL"]); diff != "" {
		t.Error(diff)
	}
	var paths []string
	for _, d := range got.Devices {
		paths = append(paths, d.ContainerPath)
	}
	if diff := cmp.Diff([]string{
		"/dev/infiniband/issm1293", "/dev/infiniband/umad1293", "/dev/infiniband/uverbs1293",
		"/dev/infiniband/rdma_cm", "/dev/infiniband/issm1291", "/dev/infiniband/umad1291",
		"/dev/infiniband/uverbs1291",
	}, paths); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"0000:81:00.1", "0000:81:00.3"}}, member.allocated); diff != "" {
		t.Error(diff)
	}
}
