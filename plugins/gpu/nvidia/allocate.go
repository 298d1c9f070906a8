package nvidia

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

const (
	visibleDevices  = "NVIDIA_VISIBLE_DEVICES"
	visibleChannels = "NVIDIA_IMEX_CHANNELS"
	volumesRoot     = "/var/run/nvidia-container-devices"
	nothingFile     = "/dev/null"

	cdiWriter = "nvidia-device-plugin_" // of an annotation's key
)

// controlNodes are for all GPUs together. One that does not exist is left out.
var controlNodes = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// Refuse refuses IDs that are not offered and, where the file says so, more than one replica for a container.
func (b *Backend) Refuse(resource string, devices []gpu.Device, unknown []string) error {
	if len(unknown) > 0 {
		return fmt.Errorf("invalid allocation request for %q: invalid request: unknown device: %s",
			resource, unknown[0])
	}
	replica := slices.ContainsFunc(devices, func(d gpu.Device) bool { return isReplica(d.ID) })
	if b.config.Sharing.RefuseMany && replica && len(devices) > 1 {
		return fmt.Errorf("invalid allocation request for %q: invalid request: maximum request size for shared "+
			"resources is 1; found %d", resource, len(devices))
	}
	return nil
}

// Allocate tells the container runtime which GPUs a container gets, in every way that is configured.
func (b *Backend) Allocate(devices []gpu.Device) *v1beta1.ContainerAllocateResponse {
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{}}
	ids := b.ids(devices)
	some, all := b.config.CDI()
	if some {
		b.addCDI(answer, ids)
	}
	for name, enabled := range map[string]bool{
		"NVIDIA_GDRCOPY": b.config.GDRCopy, "NVIDIA_GDS": b.config.GDS, "NVIDIA_MOFED": b.config.MOFED,
	} {
		if enabled {
			answer.Envs[name] = "enabled"
		}
	}
	if all {
		return answer
	}
	if slices.Contains(b.config.DeviceList, settings.ListEnvVar) {
		answer.Envs[visibleDevices] = strings.Join(ids, ",")
		if len(b.channels) > 0 {
			answer.Envs[visibleChannels] = strings.Join(channelIDs(b.channels), ",")
		}
	}
	if slices.Contains(b.config.DeviceList, settings.ListVolumeMounts) {
		b.addVolumes(answer, ids)
	}
	if b.config.PassDeviceSpecs {
		b.addNodes(answer, devices)
	}
	return answer
}

// ids are what the container runtime knows the devices by, every one once however many of its replicas are
// given.
func (b *Backend) ids(devices []gpu.Device) []string {
	var ids []string
	for _, d := range devices {
		id := original(d.ID)
		if b.config.DeviceID == settings.IDIndex {
			id = d.Index
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (b *Backend) addCDI(answer *v1beta1.ContainerAllocateResponse, ids []string) {
	var names []string
	for _, id := range ids {
		names = append(names, qualified(cdiGPU, id))
	}
	for _, id := range channelIDs(b.channels) {
		names = append(names, qualified(cdiChannel, id))
	}
	b.mu.Lock()
	names = append(names, b.extras...)
	b.mu.Unlock()
	if len(names) == 0 {
		return
	}
	if slices.Contains(b.config.DeviceList, settings.ListCDIAnnotations) {
		answer.Annotations = map[string]string{
			b.config.AnnotationPrefix + cdiWriter + uuid.NewString(): strings.Join(names, ","),
		}
	}
	if slices.Contains(b.config.DeviceList, settings.ListCDICRI) {
		for _, name := range names {
			answer.CdiDevices = append(answer.CdiDevices, &v1beta1.CDIDevice{Name: name})
		}
	}
}

func (b *Backend) addVolumes(answer *v1beta1.ContainerAllocateResponse, ids []string) {
	answer.Envs[visibleDevices] = volumesRoot
	mount := func(parts ...string) {
		answer.Mounts = append(answer.Mounts, &v1beta1.Mount{
			HostPath: nothingFile, ContainerPath: path.Join(append([]string{volumesRoot}, parts...)...),
		})
	}
	for _, id := range ids {
		mount(id)
	}
	for _, id := range channelIDs(b.channels) {
		mount("imex", id)
	}
}

func (b *Backend) addNodes(answer *v1beta1.ContainerAllocateResponse, devices []gpu.Device) {
	var nodes []string
	for _, node := range controlNodes {
		if _, err := os.Stat(path.Join(b.machine.DevRoot, node)); err == nil {
			nodes = append(nodes, "/dev/"+node)
		}
	}
	for _, d := range devices {
		nodes = append(nodes, d.Nodes...)
	}
	for _, c := range b.channels {
		nodes = append(nodes, c.path())
	}
	for i, node := range nodes {
		if slices.Contains(nodes[:i], node) {
			continue // of another replica, or of another MIG device on the same GPU
		}
		answer.Devices = append(answer.Devices, &v1beta1.DeviceSpec{
			ContainerPath: node, HostPath: path.Join(b.config.HostDevRoot, node), Permissions: "rw",
		})
	}
}
