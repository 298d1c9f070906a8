// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

func TestCDINames(t *testing.T) {
	long := strings.Repeat("x", 60)
	for _, c := range []struct {
		pool cdiPool
		name string
		kind pools.DeviceType
	}{
		{cdiPool{"a.b", "net-sf", "sriov-dp-a.b-net-sf-c.yaml", "cdi.k8s.io/a.b_net-sf"}, "a.b/c",
			pools.AuxNetDevice},
		{cdiPool{"a.b", "net-accel", "sriov-dp-a.b-net-accel-c.yaml", "cdi.k8s.io/a.b_net-accel"}, "a.b/c",
			pools.Accelerator},
		{cdiPool{long, "net-pci", "sriov-dp-" + long + "-net-pci-c.yaml", "cdi.k8s.io/sriov-dp-ee23cb5f45b1bd15"},
			long + "/c", pools.NetDevice},
	} {
		got := cdiPoolOf(pools.Pool{Name: c.name, Resource: &pools.ResourceConfig{DeviceType: c.kind}, First: true})
		if diff := cmp.Diff(c.pool, got, cmp.AllowUnexported(cdiPool{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

const vfA, vfB = "0000:86:00.2", "0000:86:00.3"

// poolOf returns a pool with these VFs.
func poolOf(t *testing.T, ids ...string) pools.Pool {
	pool := pools.Pool{Name: "x.com/vf", Resource: &pools.ResourceConfig{}}
	for _, id := range ids {
		address, err := topology.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		pool.Devices = append(pool.Devices, pools.Device{ID: id, Address: address})
	}
	return pool
}

func granted(id, node string) map[string]*Grant {
	return map[string]*Grant{id: {Name: id, Nodes: []container.Node{{Path: node, Host: node}}}}
}

// specFile is the spec of a pool on a host, whose sysfs has no device nodes.
type specFile struct {
	*testing.T
	host Host
	spec cdiSpec
	pool pools.Pool // the newest
}

func newSpecFile(t *testing.T) *specFile {
	host := Host{Sys: fstest.MapFS{}, Dev: fstest.MapFS{}, CDI: &CDI{Dirs: []string{t.TempDir()}}}
	return &specFile{T: t, host: host}
}

func (f *specFile) write(given map[string]*Grant) {
	f.Helper()
	if err := f.spec.Write(f.host, func() pools.Pool { return f.pool }, given); err != nil {
		f.Fatal(err)
	}
}

func (f *specFile) expect(ids ...string) {
	f.Helper()
	content, err := os.ReadFile(filepath.Join(f.host.CDI.Dirs[0], cdiPoolOf(f.pool).file))
	for _, id := range []string{vfA, vfB} {
		want := strings.Contains(strings.Join(ids, " "), id)
		if err != nil || strings.Contains(string(content), "name: "+id) != want {
			f.Errorf("%s in the spec: want %v; %v\n%s", id, want, err, content)
		}
	}
}

// The spec has the devices of the newest pool, whichever pool the spec was last written for: a VF that a
// container was given by name is in the spec before the answer.
func TestSpecHasNewestPool(t *testing.T) {
	f := newSpecFile(t)
	older, newer := poolOf(t, vfA), poolOf(t, vfA, vfB)
	f.pool = older
	f.write(nil)
	f.pool = newer
	f.write(granted(vfB, "/dev/infiniband/uverbs3"))
	f.expect(vfB)
	f.pool = older
	f.write(granted(vfA, "/dev/infiniband/uverbs12"))
	f.expect(vfA)
	f.pool = newer
	f.write(granted(vfB, "/dev/infiniband/uverbs3"))
	f.expect(vfB)
}

// A call that waits for another one uses the pool of the time after the wait.
func TestSpecIsWrittenWithPoolAfterWait(t *testing.T) {
	f := newSpecFile(t)
	f.pool = poolOf(t, vfA)
	f.spec.mu.Lock()
	written := make(chan error, 1)
	go func() {
		pool := func() pools.Pool { return f.pool }
		written <- f.spec.Write(f.host, pool, granted(vfB, "/dev/infiniband/uverbs3"))
	}()
	f.pool = poolOf(t, vfA, vfB)
	f.spec.mu.Unlock()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	f.expect(vfB)
}
