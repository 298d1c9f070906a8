// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/nvml"
)

const goldenUUID = "GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"

// field is a field of a message on the wire: tag, length, content.
func field(number protowire.Number, parts ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType),
		strings.Join(parts, "")))
}

// The fields of a ContainerAllocateResponse (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).
func env(name, value string) string       { return field(1, field(1, name), field(2, value)) }
func mount(inside, outside string) string { return field(2, field(1, inside), field(2, outside)) }
func deviceNode(inside, outside string) string {
	return field(3, field(1, inside), field(2, outside), field(3, "rw"))
}
func annotation(name, value string) string { return field(4, field(1, name), field(2, value)) }
func cdiDevice(name string) string         { return field(5, field(1, name)) }

var uuid4 = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// anyUUID takes the place of the random UUID in an annotation's name.
const anyUUID = "00000000-0000-4000-8000-000000000000"

// TestGolden compares answers with those of NVIDIA's own plugin on the wire.
func TestGolden(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", func(m *nvml.Machine) { m.GPUs[2].UUID = goldenUUID })
	n.install(t)
	for _, c := range []struct {
		row  string
		args []string
		file string
		want string
	}{
		{"nvidia/allocate-envvar", nil, "", env("NVIDIA_VISIBLE_DEVICES", goldenUUID)},
		{"nvidia/allocate-volume-mounts", []string{"--device-list-strategy=volume-mounts"}, "",
			env("NVIDIA_VISIBLE_DEVICES", "/var/run/nvidia-container-devices") +
				mount("/var/run/nvidia-container-devices/"+goldenUUID, "/dev/null")},
		{"nvidia/allocate-cdi-annotations", []string{"--device-list-strategy=cdi-annotations"}, "",
			annotation("cdi.k8s.io/nvidia-device-plugin_"+anyUUID, "k8s.device-plugin.nvidia.com/gpu="+goldenUUID)},
		{"nvidia/allocate-cdi-annotations",
			[]string{"--device-list-strategy=cdi-annotations", "--cdi-annotation-prefix=nvidia.cdi.k8s.io/"}, "",
			annotation("nvidia.cdi.k8s.io/nvidia-device-plugin_"+anyUUID,
				"k8s.device-plugin.nvidia.com/gpu="+goldenUUID)},
		{"nvidia/allocate-cdi-cri", []string{"--device-list-strategy=cdi-cri"}, "",
			cdiDevice("k8s.device-plugin.nvidia.com/gpu=" + goldenUUID)},
		{"nvidia/device-id-replica", nil,
			"sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
			env("NVIDIA_VISIBLE_DEVICES", goldenUUID)},
		{"nvidia/allocate-index-strategy", []string{"--device-id-strategy=index"}, "",
			env("NVIDIA_VISIBLE_DEVICES", "2")},
		{"nvidia/allocate-feature-envs", []string{"--gds-enabled"}, "",
			env("NVIDIA_GDS", "enabled") + env("NVIDIA_VISIBLE_DEVICES", goldenUUID)},
		{"nvidia/allocate-feature-envs", []string{"--gdrcopy-enabled", "--device-list-strategy=cdi-cri"}, "",
			env("NVIDIA_GDRCOPY", "enabled") + cdiDevice("k8s.device-plugin.nvidia.com/gpu="+goldenUUID) +
				cdiDevice("k8s.device-plugin.nvidia.com/gdrcopy=all")},
		{"nvidia/mofed-warning", []string{"--mofed-enabled"}, "",
			env("NVIDIA_MOFED", "enabled") + env("NVIDIA_VISIBLE_DEVICES", goldenUUID)},
		{"nvidia/imex", []string{"--imex-channel-ids=0"}, "",
			env("NVIDIA_IMEX_CHANNELS", "0") + env("NVIDIA_VISIBLE_DEVICES", goldenUUID)},
		{"nvidia/allocate-pass-device-specs",
			[]string{"--pass-device-specs", "--nvidia-dev-root=/run/nvidia/driver"}, "",
			env("NVIDIA_VISIBLE_DEVICES", goldenUUID) +
				deviceNode("/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl") +
				deviceNode("/dev/nvidia-uvm", "/run/nvidia/driver/dev/nvidia-uvm") +
				deviceNode("/dev/nvidia-uvm-tools", "/run/nvidia/driver/dev/nvidia-uvm-tools") +
				deviceNode("/dev/nvidia2", "/run/nvidia/driver/dev/nvidia2")},
	} {
		t.Run(c.row+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Attr("parity", c.row)
			args := c.args
			if c.file != "" {
				args = append(args, "--config-file="+write(t, c.file))
			}
			backend, inventory := n.discover(t, args...)
			given := slices.DeleteFunc(inventory.Resources["nvidia.com/gpu"], func(d gpu.Device) bool {
				return !strings.HasPrefix(d.ID, goldenUUID)
			})
			wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(deviceplugin.Response(backend.Edits(given)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, uuid4.ReplaceAllString(string(wire), anyUUID)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSeveralDevices: of replicas and MIG devices each device has one ID and each node is given once, and
// strategies add to each other, as far as not all of them are CDI.
func TestSeveralDevices(t *testing.T) {
	t.Attr("parity", "nvidia/allocate-envvar")
	n := record(t, "nv-h100-oci", various)
	discovered, inventory := n.discover(t, "--mig-strategy=mixed", "--config-file="+
		write(t, "sharing: {timeSlicing: {resources: [{name: mig-1g.10gb, replicas: 2}]}}"))
	first, second := n.Machine.GPUs[0].Slices[0].UUID, n.Machine.GPUs[0].Slices[1].UUID
	var given []gpu.Device
	for _, id := range []string{second + "::1", first + "::0", second + "::0"} {
		i := slices.IndexFunc(inventory.Resources["nvidia.com/mig-1g.10gb"], func(d gpu.Device) bool {
			return d.ID == id
		})
		given = append(given, inventory.Resources["nvidia.com/mig-1g.10gb"][i])
	}
	nodes := strings.Fields("/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia0 " +
		"/dev/nvidia-caps/nvidia-cap5 /dev/nvidia-caps/nvidia-cap6 " +
		"/dev/nvidia-caps/nvidia-cap3 /dev/nvidia-caps/nvidia-cap4")
	for _, c := range []struct {
		lists             []string
		id                string
		visible           string
		mounts, cdi, node []string
	}{
		{[]string{listEnvVar}, iduuid, second + "," + first, nil, nil, nodes},
		{[]string{listEnvVar}, idIndex, "0:1,0:0", nil, nil, nodes},
		{[]string{listEnvVar, listVolumeMounts}, iduuid, volumesRoot, []string{second, first}, nil, nodes},
		{[]string{listVolumeMounts, listCDIAnnotations}, idIndex, volumesRoot, []string{"0:1", "0:0"},
			[]string{"0:1", "0:0"}, nodes},
		{[]string{listEnvVar, listCDICRI}, iduuid, second + "," + first, nil, []string{second, first}, nodes},
		{[]string{listCDIAnnotations, listCDICRI}, iduuid, "", nil, []string{second, first}, nil},
	} {
		t.Run(fmt.Sprint(c.lists, " ", c.id), func(t *testing.T) {
			config := discovered.config
			config.DeviceList, config.DeviceID, config.PassDeviceSpecs = c.lists, c.id, true
			backend := &Backend{config: config, machine: discovered.machine}
			want := &v1beta1.ContainerAllocateResponse{}
			if c.visible != "" {
				want.Envs = map[string]string{visibleDevices: c.visible}
			}
			for _, id := range c.mounts {
				want.Mounts = append(want.Mounts, &v1beta1.Mount{
					ContainerPath: volumesRoot + "/" + id, HostPath: "/dev/null",
				})
			}
			var names []string
			for _, id := range c.cdi {
				names = append(names, "k8s.device-plugin.nvidia.com/gpu="+id)
			}
			if slices.Contains(c.lists, listCDIAnnotations) {
				want.Annotations = map[string]string{
					"cdi.k8s.io/nvidia-device-plugin_" + anyUUID: strings.Join(names, ","),
				}
			}
			if slices.Contains(c.lists, listCDICRI) {
				for _, name := range names {
					want.CdiDevices = append(want.CdiDevices, &v1beta1.CDIDevice{Name: name})
				}
			}
			for _, path := range c.node {
				want.Devices = append(want.Devices, &v1beta1.DeviceSpec{
					ContainerPath: path, HostPath: path, Permissions: "rw",
				})
			}
			compare(t, deviceplugin.Response(backend.Edits(given)), want)
		})
	}
}

// A claim has an environment of its own, and the container runtime adds no GPU to the named ones.
func TestConfigForClaims(t *testing.T) {
	for _, c := range [][2][]string{
		{nil, {listCDICRI}}, {{listEnvVar}, {listCDICRI}}, {{listCDIAnnotations, listCDICRI}, {listCDICRI}},
		{{listCDICRI}, {listCDICRI}}, {{listCDICRI, listEnvVar}, {listCDICRI, listEnvVar}},
	} {
		config := Config{DeviceList: c[0], DeviceID: iduuid}.ForClaims()
		edits := (&Backend{config: config}).Edits([]gpu.Device{{ID: goldenUUID}})
		want := "void"
		if slices.Contains(c[1], listEnvVar) {
			want = goldenUUID
		}
		if !slices.Equal(config.DeviceList, c[1]) || edits.Env[visibleDevices] != want ||
			len(edits.Named.Devices) != 1 {
			t.Errorf("%v: strategies %v, environment %v, names %v", c[0], config.DeviceList, edits.Env, edits.Named)
		}
	}
}

func compare(t *testing.T, got, want *v1beta1.ContainerAllocateResponse) {
	t.Helper()
	for key, value := range got.GetAnnotations() {
		delete(got.Annotations, key)
		got.Annotations[uuid4.ReplaceAllString(key, anyUUID)] = value
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	t.Attr("parity", "nvidia/allocate-unknown-id")
	t.Attr("parity", "nvidia/fail-requests-gt-one")
	two := []gpu.Device{{ID: goldenUUID + "::0"}, {ID: goldenUUID + "::1"}}
	whole := []gpu.Device{{ID: "GPU-1"}, {ID: "GPU-2"}}
	strict := &Backend{config: Config{Sharing: sharing{RefuseMany: true}}}
	for _, c := range []struct {
		backend *Backend
		devices []gpu.Device
		unknown []string
		want    string
	}{
		{&Backend{}, two, nil, ""},
		{strict, two, nil,
			`invalid allocation request for "nvidia.com/gpu": invalid request: maximum request size for shared resources is 1; found 2`},
		{strict, two[:1], nil, ""},
		{strict, whole, nil, ""},
		{&Backend{}, two, []string{"GPU-3"},
			`invalid allocation request for "nvidia.com/gpu": invalid request: unknown device: GPU-3`},
	} {
		err := c.backend.Refuse("nvidia.com/gpu", c.devices, c.unknown)
		if got := fmt.Sprint(err); got != c.want && !(err == nil && c.want == "") {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestIMEXChannels(t *testing.T) {
	t.Attr("parity", "nvidia/imex")
	dev, root := t.TempDir(), t.TempDir()
	channelFile := filepath.Join(dev, "nvidia-caps-imex-channels/channel0")
	if err := os.MkdirAll(filepath.Dir(channelFile), 0o750); err != nil {
		t.Fatal(err)
	}
	config := Config{ContainerDriverRoot: root, IMEXChannels: []int{0}}
	if found, err := findChannels(&config, dev); err != nil || len(found) != 0 || len(config.Warnings) != 1 ||
		!strings.Contains(config.Warnings[0], channelFile) {
		t.Errorf("missing: %v, %v, %v", found, err, config.Warnings)
	}
	config.IMEXRequired = true
	if _, err := findChannels(&config, dev); err == nil || !strings.Contains(err.Error(), "imex.required") {
		t.Errorf("required: %v", err)
	}
	if err := os.WriteFile(channelFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findChannels(&config, dev); err == nil ||
		!strings.Contains(err.Error(), "not a character device") {
		t.Errorf("a file: %v", err)
	}
	if err := os.Remove(channelFile); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", channelFile); err != nil {
		t.Fatal(err)
	}
	found, err := findChannels(&config, dev)
	if err != nil || len(found) != 1 || found[0].path() != "/dev/nvidia-caps-imex-channels/channel0" ||
		found[0].hostPath != channelFile {
		t.Errorf("there: %v, %v", found, err)
	}
	backend := &Backend{
		config: Config{
			DeviceList: []string{listVolumeMounts, listCDICRI}, PassDeviceSpecs: true,
		},
		machine:  Machine{DevRoot: root},
		channels: found,
	}
	answer := backend.Edits([]gpu.Device{{ID: goldenUUID, Nodes: []string{"/dev/nvidia0"}}})
	if mounts := answer.Mounts; len(mounts) != 2 ||
		mounts[1].Path != "/var/run/nvidia-container-devices/imex/0" {
		t.Errorf("mounts %v", mounts)
	}
	if devices := answer.Named.Devices; !answer.Named.Field || len(devices) != 2 ||
		devices[1] != "k8s.device-plugin.nvidia.com/imex-channel=0" {
		t.Errorf("CDI devices %v", devices)
	}
	if nodes := answer.Nodes; len(nodes) != 2 || nodes[1].Path != found[0].path() {
		t.Errorf("device nodes %v", nodes)
	}
}
