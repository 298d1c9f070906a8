// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// Whatever backends and grants return has words in the kubelet's API.
func TestResponse(t *testing.T) {
	edits := container.Edits{
		Env:    map[string]string{"A": "b"},
		Nodes:  []container.Node{{Path: "/dev/a", Host: "/driver/dev/a"}},
		Mounts: []container.Mount{{Path: "/run/a", Host: "/a", ReadOnly: true}},
	}
	want := &v1beta1.ContainerAllocateResponse{
		Envs:    map[string]string{"A": "b"},
		Devices: []*v1beta1.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/driver/dev/a", Permissions: "rw"}},
		Mounts:  []*v1beta1.Mount{{ContainerPath: "/run/a", HostPath: "/a", ReadOnly: true}},
	}
	compare := func() {
		t.Helper()
		if diff := cmp.Diff(want, Response(edits), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	edits.Named = container.Named{Annotation: "cdi.k8s.io/a", Field: true}
	compare() // no names
	edits.Named.Devices = []string{"a.com/gpu=0", "a.com/gpu=1"}
	want.Annotations = map[string]string{"cdi.k8s.io/a": "a.com/gpu=0,a.com/gpu=1"}
	want.CdiDevices = []*v1beta1.CDIDevice{{Name: "a.com/gpu=0"}, {Name: "a.com/gpu=1"}}
	compare()
	edits.Named.Annotation, want.Annotations = "", nil
	compare()
	edits.Named.Annotation, want.Annotations = "x", map[string]string{"x": "a.com/gpu=0,a.com/gpu=1"}
	edits.Named.Field, want.CdiDevices = false, nil
	compare()
}
