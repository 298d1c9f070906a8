// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

// TestWrite: the readers find what was written.
func TestWrite(t *testing.T) {
	t.Parallel()
	response, err := proto.Marshal(&v1beta1.ContainerAllocateResponse{
		Mounts: []*v1beta1.Mount{{HostPath: "/run/tandem/pairs/1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	allocations := []checkpoint.Allocation{
		{"uid", "main", "amd.com/gpu", map[string][]string{"0": {"a"}, "-1": {"b"}}, nil},
		{"uid", "main", "x/vf", map[string][]string{"1": {"c"}}, response},
	}
	registered := map[string][]string{"amd.com/gpu": {"a", "b", "d"}}
	if err := checkpoint.Write(dir, allocations, registered); err != nil {
		t.Fatal(err)
	}
	read, err := kubelet.ReadCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	listed := read.Listed("amd.com/gpu")
	if diff := cmp.Diff(map[string]int{"a": 0, "b": -1, "d": -1}, listed); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	granted, err := kubelet.ReadGranted(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []kubelet.Granted{{
		Container: "uid/main", Devices: map[string][]string{"amd.com/gpu": {"a", "b"}, "x/vf": {"c"}},
		Mounts: []string{"/run/tandem/pairs/1"},
	}}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}
