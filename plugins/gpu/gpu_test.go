// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

// optional is a Backend with everything a Backend may have.
type optional struct {
	scripted
	due chan struct{}
}

func (o *optional) Watch(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.due:
			changed()
		}
	}
}

var errRefused = errors.New("refused")

// Refuse refuses unknown devices and the device "never".
func (o *optional) Refuse(_ string, devices []Device, unknown []string) error {
	if len(unknown) > 0 || slices.ContainsFunc(devices, func(d Device) bool { return d.ID == "never" }) {
		return errRefused
	}
	return nil
}

func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &optional{due: make(chan struct{})}
		backend.find(map[string]string{"nvidia.com/gpu": "a b"}, nil)
		gpus := discover(t, backend, 0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- gpus.Run(ctx) }()
		backend.find(map[string]string{"nvidia.com/gpu": "a"}, nil)
		synctest.Wait()
		if got := gpus.state("nvidia.com/gpu"); got != "a b" {
			t.Errorf("nobody said that it is time: %s", got)
		}
		backend.due <- struct{}{}
		synctest.Wait()
		if got := gpus.state("nvidia.com/gpu"); got != "a b!" {
			t.Errorf("devices %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRefuser(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	backend := &optional{}
	backend.find(map[string]string{"nvidia.com/gpu": "a b never"}, nil)
	for i := range backend.inventory.Resources["nvidia.com/gpu"] {
		backend.inventory.Resources["nvidia.com/gpu"][i].Card = topology.Address{Bus: uint8(i + 1)}
	}
	gpus := discover(t, backend, 0)
	dir := kubelettest.Dir(t)
	if err := os.MkdirAll(filepath.Join(dir, "bus/pci/devices"), 0o750); err != nil {
		t.Fatal(err)
	}
	node, err := coordination.New(coordination.Config{
		RunDir: filepath.Join(dir, "run"), SysRoot: dir, KubeletDir: dir, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	plugin := NewPlugin("nvidia.com/gpu", gpus, node.Member("nvidia.com/gpu", device.GPU), log)
	for _, ids := range [][]string{{"never"}, {"a", "never"}, {"c"}} {
		if _, err := plugin.Allocate(t.Context(), ids); !errors.Is(err, errRefused) {
			t.Errorf("allocate %v: %v", ids, err)
		}
	}
	if _, err := plugin.Allocate(t.Context(), []string{"a", "b"}); err != nil {
		t.Error(err)
	}
}

// The health of a card counts in the first list of devices, and if the GPUs cannot be read: a GPU with faults
// can be the reason for that.
func TestHealthOfCards(t *testing.T) {
	const width = "bus/pci/devices/0000:11:00.0/current_link_width"
	card := topology.Address{Bus: 0x11}
	backend := &scripted{inventory: Inventory{
		Resources: map[string][]Device{"amd.com/gpu": {{ID: "a", Card: card, Healthy: true}}},
	}}
	for name, first := range map[string]string{"at first": "8", "later": "16"} {
		backend.err = nil
		gpus := discover(t, backend, 0)
		sys := fstest.MapFS{
			"bus/pci/devices/0000:11:00.0/max_link_width": {Data: []byte("16\n")}, width: {Data: []byte(first)},
		}
		gpus.Heed(health.New(health.Default(), sys))
		if name == "later" {
			backend.err = errors.New("the GPU is lost")
			sys[width].Data = []byte("8")
			gpus.health.Look()
			gpus.discoverAgain()
		}
		if devices, _, _ := gpus.latestDevices("amd.com/gpu"); !devices[0].Degraded {
			t.Errorf("%s: %+v", name, devices[0])
		}
	}
}

// TestFatalErrorOfACard: the kubelet gives no pod a GPU whose card has had a fatal error, with its reason.
func TestFatalErrorOfACard(t *testing.T) {
	const errors = "bus/pci/devices/0000:11:00.0/aer_dev_fatal"
	card := topology.Address{Bus: 0x11}
	gpus := discover(t, &scripted{inventory: Inventory{
		Resources: map[string][]Device{"amd.com/gpu": {{ID: "a", Card: card, Healthy: true}}},
	}}, 0)
	sys := fstest.MapFS{errors: {Data: []byte("TOTAL_ERR_FATAL 0\n")}}
	gpus.Heed(health.New(health.Default(), sys))
	sys[errors].Data = []byte("TOTAL_ERR_FATAL 1\n")
	gpus.health.Look()
	gpus.discoverAgain()
	devices, _, _ := gpus.latestDevices("amd.com/gpu")
	if d := devices[0]; d.Healthy || d.Reason != "aer_fatal increased" {
		t.Errorf("got %+v", d)
	}
}
