// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// scene is a node with the devices 0000:01:00.0 (GPU) and 0000:02:00.0 (VF), in two pods one after the other.
type scene struct {
	*Node
	*testing.T
}

func newScene(t *testing.T) scene {
	return scene{NewNode(nil, machine.MI300X, 1), t}
}

var oneOfEach = Outcome{Containers: []View{
	{GPUs: []string{"/sys/devices/0000:01:00.0"}, VFs: []string{"/sys/devices/0000:02:00.0"}},
}}

var oneGPU = Outcome{Containers: []View{{GPUs: []string{"/sys/devices/0000:01:00.0"}}}}

func (s scene) create(pod string, o Outcome) {
	s.recording.arrives(Pod{Name: pod, Asks: []Ask{{GPUs: 1, VFs: 1}}}, "uid of "+pod)
	s.recording.seen(pod, &o)
}

func (s scene) remove(pod string) {
	s.recording.ending(pod)
	s.recording.gone(pod)
}

// view records the kubelet's records and Tandem's view with an owner of the GPU alone.
func (s scene) view(kubelet, owner string) {
	l := &ledger{
		holdings: holdings{}, kinds: map[string]string{"amd.com/gpu": "gpu", "example/vf": "vf"},
		addresses: map[string]string{"amd.com/gpu 1": "0000:01:00.0", "example/vf 2": "0000:02:00.0"},
	}
	if owner != "" {
		l.holdings["amd.com/gpu 1"] = owner
	}
	s.recording.view(s.recording.viewing(), l)
	if kubelet != "" {
		s.recording.confirmAll(holdings{"amd.com/gpu 1": kubelet}, l)
	}
}

func (s scene) want(p history.Promise) {
	s.Helper()
	_, err := s.Judge()
	var breach *history.Breach
	switch {
	case p == "" && err != nil:
		s.Error(err)
	case p != "" && (!errors.As(err, &breach) || breach.Promise != p):
		s.Errorf("%v, want %s", err, p)
	}
}

func TestRecording(t *testing.T) {
	s := newScene(t)
	s.create("a", oneOfEach)
	s.remove("a")
	s.create("b", oneGPU)
	s.view("default/b/c0", "default/b/c0")
	s.create("refused", Outcome{Reason: "TopologyAffinityError"})
	s.remove("b")
	s.view("", "")
	s.want("")

	s.create("a", oneOfEach)
	s.create("b", oneOfEach)
	s.want(history.TwoOwners)

	s.create("a", oneGPU)
	s.view("default/a/c0", "")
	s.want(history.Forgotten)

	s.create("a", oneGPU)
	s.Storm("kill")
	s.view("default/a/c0", "")
	s.Calm()
	s.view("default/a/c0", "default/a/c0")
	s.want("")

	s.create("a", Outcome{Reason: "UnexpectedAdmissionError"})
	s.want(history.Refused)
}

// After a reboot pods may have lost their devices before they are deleted.
func TestRecordingOfReboot(t *testing.T) {
	s := newScene(t)
	s.create("a", oneOfEach)
	s.recording.rebooting()
	s.create("b", oneOfEach)
	s.remove("a")
	s.want("")
}
