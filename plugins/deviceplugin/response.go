// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"strings"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// Response returns the edits of a container as the kubelet's API has them.
func Response(e container.Edits) *v1beta1.ContainerAllocateResponse {
	r := &v1beta1.ContainerAllocateResponse{Envs: e.Env}
	for _, node := range e.Nodes {
		r.Devices = append(r.Devices, &v1beta1.DeviceSpec{
			ContainerPath: node.Path, HostPath: node.Host, Permissions: container.Permissions,
		})
	}
	for _, mount := range e.Mounts {
		r.Mounts = append(r.Mounts, &v1beta1.Mount{
			ContainerPath: mount.Path, HostPath: mount.Host, ReadOnly: mount.ReadOnly,
		})
	}
	if len(e.Named.Devices) == 0 {
		return r
	}
	if e.Named.Annotation != "" {
		r.Annotations = map[string]string{e.Named.Annotation: strings.Join(e.Named.Devices, ",")}
	}
	if e.Named.Field {
		for _, name := range e.Named.Devices {
			r.CdiDevices = append(r.CdiDevices, &v1beta1.CDIDevice{Name: name})
		}
	}
	return r
}
