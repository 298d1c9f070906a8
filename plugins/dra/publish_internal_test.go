// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestSlicesOfOneNode: the driver reads the slices of its own node alone, because devices of other nodes have
// the same names.
func TestSlicesOfOneNode(t *testing.T) {
	t.Parallel()
	server := apiserver.New()
	for i, of := range []struct{ driver, node string }{
		{pool.Driver, "b"}, {"example.com", "a"}, {pool.Driver, "a"},
	} {
		server.Put(&resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", i)},
			Spec:       resourceapi.ResourceSliceSpec{Driver: of.driver, NodeName: &of.node},
		})
	}
	const want = "slice-2"
	own := cache.ToListerWatcherWithContext(slicesOf(client.New(server), "a"))
	listed, err := own.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if list := listed.(*resourceapi.ResourceSliceList); len(list.Items) != 1 || list.Items[0].Name != want {
		t.Errorf("lists %v, want %s", list.Items, want)
	}
	watcher, err := own.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if event := <-watcher.ResultChan(); event.Object.(*resourceapi.ResourceSlice).Name != want {
		t.Errorf("watches %v, want %s", event.Object, want)
	}
}

// A VF that becomes unhealthy after its publication counts as sound, as long as it is unhealthy; one that was
// unhealthy before does not.
func TestSoundVFs(t *testing.T) {
	t.Parallel()
	vfs := func(ill ...string) (m pool.Machine) {
		for _, id := range []string{"becomes", "became", "was", "well"} {
			d := pools.Device{ID: id}
			if slices.Contains(ill, id) {
				d.Fault = "the RDMA port is not active"
			}
			m.VFs = append(m.VFs, pool.VF{Device: d})
		}
		return m
	}
	v := &view{wasSound: map[string]bool{"became": true}}
	if v.State.Machine = vfs("became", "was"); v.listSound()["well"] {
		t.Error("a VF was published before the features of the cluster were known")
	}
	v.Gates.Known = true
	want := map[string]bool{"becomes": true, "became": true, "was": false, "well": true}
	if got := v.listSound(); !maps.Equal(got, want) {
		t.Errorf("sound: %v, want %v", got, want)
	}
}

// What claims have is known before anything is published, and stays known while the checkpoint cannot be
// read.
func TestUnreadCheckpoint(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := newViewer(partsIn(dir, Config{CDIDir: t.TempDir(), Log: log}))
	d.holders.holders.Set(map[string]string{})
	d.gates.newest = features{Known: true, Counters: true, Taints: true}
	file := filepath.Join(dir, claims.FileName)
	for _, step := range []struct {
		what  string
		do    func() error
		known bool
		inUse int
	}{
		{"it cannot be read", func() error { return os.Mkdir(file, 0o750) }, false, 0},
		{"it can", func() error {
			err := os.Remove(file)
			prepared(t, dir, "one", "two")
			return err
		}, true, 2},
		{"it is damaged", func() error { return os.WriteFile(file, []byte("{"), 0o600) }, true, 2},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		d.updateView()
		if v := d.newest.Get(); v.isKnown() != step.known || len(v.claims()) != step.inUse {
			t.Errorf("%s: known %v, claims %v", step.what, v.isKnown(), v.claims())
		}
	}
}

// Before the kubelet's record of devices was read once nothing is published: a device plugin's pod may have
// any device. A record that is damaged later changes nothing.
func TestUnreadRecord(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	m := newMigrating(t)
	d := m.viewer
	var err error
	if d.machine.Tree, err = topology.Read(fstest.MapFS{"bus/pci/devices": {Mode: fs.ModeDir}}); err != nil {
		t.Fatal(err)
	}
	d.gates = newGates(nil, "a", log)
	d.preparer = claims.New(claims.Options{Dir: dir, CDIDir: t.TempDir(), Log: log})
	d.gates.newest = features{Known: true, Counters: true, Taints: true}
	file := kubelet.CheckpointPath(d.config.KubeletDir)
	for _, step := range []struct {
		what  string
		do    func() error
		known bool
		held  string
	}{
		{"it is damaged", func() error {
			return errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte("{"), 0o600))
		}, false, ""},
		{"there is none, and the kubelet has just started", func() error { return os.Remove(file) }, false, ""},
		{"there is none, and no pod has devices", func() error {
			own := &podresources.PodResources{Namespace: "kube-system", Name: "tandem-dra"}
			m.change(func() { m.listed = []*podresources.PodResources{own} })
			return nil
		}, true, ""},
		{"it is there", func() error {
			m.record(map[string]string{"1": "a"})
			return nil
		}, true, "a pod with UID 1"},
		{"it is damaged again", func() error {
			return os.WriteFile(file, []byte("{"), 0o600)
		}, true, "a pod with UID 1"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		d.holders.updateHolders(t.Context(), d.machine)
		d.updateView()
		v := d.newest.Get()
		held, _, _ := strings.Cut(v.State.Machine.GPUs[0].Held, ", ")
		if v.isKnown() != step.known || (v.State.Unread == nil) != step.known || held != step.held {
			t.Errorf("%s: known %v, %v, held by %q", step.what, v.isKnown(), v.State.Unread, held)
		}
	}
}

// TestHeldUnit: a pod holds a GPU by the PCI address, as plugins for virtual machines call it, whatever the
// node calls the GPU.
func TestHeldUnit(t *testing.T) {
	m := newMigrating(t)
	m.machine.GPUs[0].Card = topology.Address{Bus: 0x81}
	m.record(map[string]string{"1": "0000:81:00.0"})
	m.holds("under another name", "a by UID 1")
}

// growing has one more GPU each time that it is asked, up to two.
type growing struct {
	gpu.Backend
	cards []topology.Address
	asked int
}

func (g *growing) Discover() (gpu.Inventory, error) {
	g.asked = min(g.asked+1, len(g.cards))
	var devices []gpu.Device
	for _, card := range g.cards[:g.asked] {
		devices = append(devices, gpu.Device{ID: card.String(), Card: card, Healthy: true})
	}
	return gpu.Inventory{Resources: map[string][]gpu.Device{"amd.com/gpu": devices}}, nil
}

func (*growing) Links() ([]topology.Link, error) { return nil, nil }

// A change of the devices is seen although the PCI tree cannot be read at the moment, and nothing changes
// after that.
func TestFailedLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := machines.Sys(t, "oci-mi300x-derived", 0)
		log, reads := slog.New(slog.DiscardHandler), 0
		config := Config{Log: log, Tree: func() (*topology.Tree, error) {
			if reads++; reads == 2 {
				return nil, errors.New("a function has gone while it was read")
			}
			return topology.Read(sys)
		}}
		config.Host.Sys = sys
		tree, err := topology.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		backend := &growing{}
		for d := range tree.Devices() {
			if gpu.Vendor(d) != "" && len(backend.cards) < 2 {
				backend.cards = append(backend.cards, d.Address)
			}
		}
		if config.GPUs, err = gpu.Discover(backend, time.Second, log); err != nil {
			t.Fatal(err)
		}
		config.CDIDir = t.TempDir()
		w := newViewer(partsIn(t.TempDir(), config))
		w.holders.holders.Set(map[string]string{})
		if w.scan, err = w.scanMachine(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { _ = config.GPUs.Run(ctx) })
		all.Go(func() { _ = w.followChanges(ctx) })
		for v, changed := w.newest.Watch(); len(v.State.Machine.GPUs) < 2; v, changed = w.newest.Watch() {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%d GPUs an hour after there are 2", len(v.State.Machine.GPUs))
			}
		}
	})
}
