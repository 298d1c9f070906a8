// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// pairAlone is a machine of eight GPUs, each with a PF of four VFs on its switch, with both plugins and
// nobody who serves.
type pairAlone struct {
	tree      *topology.Tree
	runDir    string
	gpus, vfs *Member
	all       map[device.Kind][]string
}

func newPairAlone(t *testing.T) *pairAlone {
	t.Helper()
	p := &pairAlone{all: map[device.Kind][]string{}}
	tree, sys, announced := announceMachine(t, "oci-mi300x-derived", 4, once)
	p.tree = tree
	p.runDir, _ = heldDir(t)
	member := func(name string, kind device.Kind) *Member {
		for _, d := range announced[name].Devices {
			p.all[kind] = append(p.all[kind], d.ID)
		}
		node, _ := startWith(t, Config{
			RunDir: p.runDir, SysRoot: sys, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		m := node.Member(name, kind)
		m.Publish(announced[name])
		return m
	}
	p.gpus, p.vfs = member(gpus, device.GPU), member(vfs, device.VF)
	return p
}

// chooseAlone answers a question without the coordinator.
func chooseAlone(m *Member, available, mustInclude []string, size int) []string {
	return m.Alone(&api.PreferRequest{
		Resource: m.announced.resource, Available: available, MustInclude: mustInclude, Size: uint32(size),
	}, errForeign)
}

// give is what the kubelet does with one half of a container. It returns the devices as the container lists
// them.
func (p *pairAlone) give(t *testing.T, m *Member, available []string, size int) []string {
	t.Helper()
	chosen := chooseAlone(m, available, nil, size)
	if len(chosen) != size {
		t.Fatalf("%d of %s: %v", size, m.announced.resource, chosen)
	}
	shuffled := slices.Clone(chosen)
	rand.Shuffle(size, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	listed, _, err := m.Allocated(t.Context(), m.StartAllocate(t.Context(), shuffled))
	if err != nil || !device.SameSet(listed, chosen) {
		t.Fatalf("allocate %v: %v, %v", chosen, listed, err)
	}
	return listed
}

func (p *pairAlone) device(t *testing.T, id string) *topology.Device {
	t.Helper()
	address, err := topology.ParseAddress(id)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := p.tree.Device(address)
	if !ok {
		t.Fatalf("%s is not there", id)
	}
	return d
}

// wantPaired: the i-th GPU and the i-th VF are on one switch.
func (p *pairAlone) wantPaired(t *testing.T, gpus, vfs []string) {
	t.Helper()
	for i, gpu := range gpus {
		if d := p.tree.Distance(p.device(t, gpu).Address, p.device(t, vfs[i]).Address); d.Level > topology.PXB {
			t.Errorf("%s and %s are %s; GPUs %v, VFs %v", gpu, vfs[i], d.Level, gpus, vfs)
		}
	}
}

// wantSpread: each VF is of another PF, and beside a GPU of its own.
func (p *pairAlone) wantSpread(t *testing.T, vfs []string) {
	t.Helper()
	pfs, gpus := map[topology.Address]bool{}, map[string]bool{}
	for _, vf := range vfs {
		d := p.device(t, vf)
		pfs[d.PF] = true
		for _, gpu := range p.all[device.GPU] {
			if p.tree.Distance(p.device(t, gpu).Address, d.Address).Level <= topology.PXB {
				gpus[gpu] = true
			}
		}
	}
	if len(pfs) != len(vfs) || len(gpus) < len(vfs) {
		t.Errorf("VFs %v of %d PFs, beside %d GPUs", vfs, len(pfs), len(gpus))
	}
}

// onNode lists the devices of a kind on a NUMA node.
func (p *pairAlone) onNode(t *testing.T, kind device.Kind, node int) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(p.all[kind]), func(id string) bool {
		return p.device(t, id).NUMA != topology.Node(node)
	})
}

// Without the coordinator the half that is asked first goes by the PCI tree, the second one by the first,
// which the other plugin gave.
func TestAlone(t *testing.T) {
	t.Attr("parity", "pair/peer-absent")
	p := newPairAlone(t)
	for _, size := range []int{1, 2, 4} {
		for node := range 2 {
			p.wantSpread(t, p.give(t, p.vfs, p.onNode(t, device.VF, node), size))
			free := slices.Clone(p.onNode(t, device.GPU, node))
			rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
			few := p.give(t, p.gpus, free[:size], size) // what the kubelet leaves it, anywhere
			listed := p.give(t, p.vfs, p.all[device.VF], size)
			p.wantPaired(t, few, listed)
		}
	}
}

// VFs first: the GPUs are those beside them, wherever they had to be taken from.
func TestAloneGPUsFollowVFs(t *testing.T) {
	p := newPairAlone(t)
	for _, pf := range []int{5, 2, 7} { // the VFs of one PF are left
		one := p.all[device.VF][4*pf : 4*pf+4]
		listed := p.give(t, p.vfs, one, 1)
		p.wantPaired(t, p.give(t, p.gpus, p.all[device.GPU], 1), listed)
	}
}

// A container that takes over from an init container with one pair gets more of them beside other GPUs.
func TestAloneAfterAnInitContainer(t *testing.T) {
	p := newPairAlone(t)
	vf := p.give(t, p.vfs, p.all[device.VF], 1)
	p.wantPaired(t, p.give(t, p.gpus, p.all[device.GPU], 1), vf)
	p.wantSpread(t, chooseAlone(p.vfs, p.all[device.VF], vf, 3))
}

// GPUs that were given without VFs are taken for the first half of whoever asks for VFs next, whose VFs are
// spread all the same.
func TestAloneAfterGPUsAlone(t *testing.T) {
	p := newPairAlone(t)
	p.give(t, p.gpus, p.all[device.GPU], 1)
	p.wantSpread(t, chooseAlone(p.vfs, p.all[device.VF], nil, 4))
}

// What was given long ago, or cannot be read, is nobody's first half.
func TestAloneWithoutAFirstHalf(t *testing.T) {
	p := newPairAlone(t)
	file := handoutFile(p.runDir, device.GPU)
	for _, content := range []string{
		"", "{", `{"at": "2020-01-01T00:00:00Z", "devices": [{"ID": "x", "Address": "0000:0c:00.0"}]}`,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p.wantSpread(t, chooseAlone(p.vfs, p.all[device.VF], nil, 4))
	}
	gpus := p.give(t, p.gpus, p.all[device.GPU], 2)
	p.wantPaired(t, gpus, p.give(t, p.vfs, p.all[device.VF], 2))
	// the next container's: both halves of the last one were given
	taken := chooseAlone(p.vfs, p.all[device.VF], nil, 1)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := chooseAlone(p.vfs, p.all[device.VF], nil, 1); !slices.Equal(got, taken) {
		t.Errorf("VFs %v go by a container that has its own, want %v", taken, got)
	}
}

// handoutPair has the two plugins' handouts in one run folder.
type handoutPair struct{ gpus, vfs *handouts }

func newHandoutPair(dir string, d *disk.Disk) handoutPair {
	log := slog.New(slog.DiscardHandler)
	of := func(kind device.Kind) *handouts {
		return newHandouts(log, d.Disk(), dir, kind, newHandoutReader(log, dir, kind.Other()))
	}
	return handoutPair{of(device.GPU), of(device.VF)}
}

// Whichever step of a handout fails, or ends the plugin: the other plugin reads the last handout or the one
// before, and after a power failure possibly none.
func TestEveryStepOfAHandout(t *testing.T) {
	t.Parallel()
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		fault.Quiet = true
		dir := t.TempDir()
		fault.Name(dir, "handout")
		p := newHandoutPair(dir, fault.Disk)
		if err := p.gpus.record([]placement.Device{{ID: "before"}}); err != nil {
			t.Fatal(err)
		}
		var err error
		struck := fault.During(t, func() { err = p.gpus.record([]placement.Device{{ID: "after"}}) })
		if (err == nil) != (struck == disk.Nothing) {
			t.Errorf("error %v after %v", err, struck)
		}
		got := newHandoutPair(dir, fault.Disk).vfs.likelyCounterparts()
		isOf := func(id string) bool { return len(got) == 1 && got[0].ID == id }
		switch {
		case fault.Power && got == nil:
		case err == nil && !fault.Power && !isOf("after"), !isOf("before") && !isOf("after"):
			t.Errorf("the other plugin reads %v", got)
		}
		next := newHandoutPair(dir, fault.Disk)
		if err := next.gpus.record([]placement.Device{{ID: "next"}}); err != nil {
			t.Error(err)
		}
		if got := next.vfs.likelyCounterparts(); !slices.Equal(got, []placement.Device{{ID: "next"}}) {
			t.Errorf("after the next handout: %v", got)
		}
	})
}

// A disk that hangs delays no allocation beyond the limit, and later the last handout is on the disk.
func TestHandoutOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, slow := t.TempDir(), disk.New(1)
		slow.Delay = time.Minute
		p := newHandoutPair(dir, slow)
		slow.At(2, disk.Slow)
		began := time.Now()
		err := p.gpus.record([]placement.Device{{ID: "first"}})
		if took := time.Since(began); err == nil || took > handoutLimit {
			t.Errorf("%v after %s", err, took)
		}
		<-time.After(2 * slow.Delay)
		if err := p.gpus.record([]placement.Device{{ID: "second"}}); err != nil {
			t.Error(err)
		}
		if got := p.vfs.likelyCounterparts(); len(got) != 1 || got[0].ID != "second" {
			t.Errorf("the other plugin reads %v", got)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("files %v, %v", entries, err)
		}
	})
}
