package claims

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/specs-go"
)

// Whatever device plugins can answer has words in CDI.
func TestEdits(t *testing.T) {
	node := func(path, host string) *v1beta1.DeviceSpec {
		return &v1beta1.DeviceSpec{ContainerPath: path, HostPath: host, Permissions: "rw"}
	}
	e := environment{answers: []*v1beta1.ContainerAllocateResponse{
		{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "EMPTY": ""},
			Devices: []*v1beta1.DeviceSpec{
				node("/dev/nvidia0", "/driver/dev/nvidia0"), node("/dev/nvidia0", "/other"),
			},
			Mounts: []*v1beta1.Mount{
				{ContainerPath: "/run/gpu", HostPath: "/dev/null"}, {ContainerPath: "/run/gpu", HostPath: "/again"},
			},
			CdiDevices: []*v1beta1.CDIDevice{{Name: "nvidia.com/gpu=0"}, {Name: "nvidia.com/gpu=1"}},
			Annotations: map[string]string{
				"cdi.k8s.io/x": "nvidia.com/gpu=1,nvidia.com/gpu=2", "note": "not a device",
			},
		},
		{
			Envs:   map[string]string{"PCIDEVICE_A": "x"},
			Mounts: []*v1beta1.Mount{{ContainerPath: "/run/pairs.json", HostPath: "/pairs.json", ReadOnly: true}},
		},
	}}
	edits, others := e.edits()
	if diff := cmp.Diff(specs.ContainerEdits{
		Env: []string{"EMPTY=", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2", "PCIDEVICE_A=x"},
		DeviceNodes: []*specs.DeviceNode{
			{Path: "/dev/nvidia0", HostPath: "/driver/dev/nvidia0", Permissions: "rw"},
		},
		Mounts: []*specs.Mount{
			{ContainerPath: "/run/gpu", HostPath: "/dev/null", Options: []string{"rbind", "rprivate", "rw"}},
			{ContainerPath: "/run/pairs.json", HostPath: "/pairs.json", Options: []string{"rbind", "rprivate", "ro"}},
		},
	}, edits); diff != "" {
		t.Error(diff)
	}
	named := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2"}
	if diff := cmp.Diff(named, others); diff != "" {
		t.Error(diff)
	}
}

// Where all is in CDI devices of others there is no spec of ours: CDI refuses devices without edits.
func TestNothingToEdit(t *testing.T) {
	n := newNode(t, "nv-h100-oci", 4, toldVFs, true)
	c := Claim{UID: "uid", Devices: []Prepared{
		{Request: "gpus", Device: "gpu", Group: "g"}, {Request: "gpus", Group: "g"},
	}}
	environments := map[string]*environment{"g": {answers: []*v1beta1.ContainerAllocateResponse{
		{CdiDevices: []*v1beta1.CDIDevice{{Name: "nvidia.com/gpu=0"}}},
	}}}
	c.names(environments)
	if diff := cmp.Diff([]string{"nvidia.com/gpu=0"}, c.Devices[0].CDI); diff != "" || c.Devices[1].CDI != nil {
		t.Errorf("%s, %v", diff, c.Devices[1].CDI)
	}
	if err := n.writeSpec(c, environments); err != nil {
		t.Fatal(err)
	}
	if exists(n.specPath("uid")) {
		t.Error("a spec without edits")
	}
}

// The file says whose spec it is.
func TestClaimOfSpec(t *testing.T) {
	for name, want := range map[string]string{
		"tandem.dev-claim_5e0c.json": "5e0c", "tandem.dev-claim_.json": "", "tandem.dev-claim_5e0c.yaml": "",
		"nvidia.com-claim_5e0c.json": "",
	} {
		if uid, ok := claimOfSpec(name); ok != (want != "") || ok && string(uid) != want {
			t.Errorf("%s: %q, %v; want %q", name, uid, ok, want)
		}
	}
}
