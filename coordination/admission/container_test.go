// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"reflect"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// An Allocate without a question can seem to be the other half of the container before. As soon as a look
// shows both containers, the newest one has its own devices alone.
func TestContainerThatALookShowsTwice(t *testing.T) {
	before := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "before"}, Name: "c"}
	newest := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "newest"}, Name: "c"}
	vfs, gpus := kubelet.Devices{"vf": {"v0"}}, kubelet.Devices{"gpu": {"g0"}}
	both := kubelet.Devices{"vf": {"v0"}, "gpu": {"g0"}}
	for _, c := range []struct {
		name    string
		shown   map[kubelet.Container]kubelet.Devices
		owner   *kubelet.Container
		devices kubelet.Devices
	}{
		{"both", map[kubelet.Container]kubelet.Devices{before: vfs, newest: gpus}, &newest, gpus},
		{"one with both", map[kubelet.Container]kubelet.Devices{newest: both}, &newest, both},
		{"only the one before", map[kubelet.Container]kubelet.Devices{before: vfs}, nil, gpus},
		{"only the newest", map[kubelet.Container]kubelet.Devices{newest: gpus}, &newest, gpus},
		{"none", nil, nil, both},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 { // in any order of the containers
				given := recipient{ID: 1}.WithDevices("vf", vfs["vf"]).WithDevices("gpu", gpus["gpu"])
				got := given.ShownIn(kubelet.Read(kubelet.View{Containers: c.shown}, nil))
				if !reflect.DeepEqual(got.Owner, c.owner) || !reflect.DeepEqual(got.Devices, c.devices) {
					t.Fatalf("owner %v, devices %v; want %v, %v", got.Owner, got.Devices, c.owner, c.devices)
				}
			}
		})
	}
}

// A container is immutable: its devices stay, whatever a later state adds.
func TestWithDevicesKeepsTheContainer(t *testing.T) {
	t.Parallel()
	first := recipient{}.WithDevices(gpus, []string{"g1"})
	second := first.WithDevices(vfs, []string{"v1"})
	if !first.Lacks(vfs) || second.Lacks(gpus) || second.Lacks(vfs) || second.Newest != vfs {
		t.Errorf("first %+v, second %+v", first, second)
	}
}
