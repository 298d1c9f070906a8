// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology"
)

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
		gpus, err := Discover(backend, 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
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
	gpus, err := Discover(&scripted{inventory: Inventory{
		Resources: map[string][]Device{"amd.com/gpu": {{ID: "a", Card: card, Healthy: true}}},
	}}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
