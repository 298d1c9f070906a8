// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registryFolder is the directory in which the kubelet's plugin watcher looks for sockets
// (DefaultKubeletPluginsRegistrationDirName in pkg/kubelet/config/defaults.go). The kubelet does not remove
// these sockets when it starts.
const registryFolder = "plugins_registry"

// Registration is the way in which the kubelet learns of a plugin. A plugin uses only one way at a time,
// because the kubelet would see two plugins.
type Registration string

// Registration values. Auto is the behaviour of the SR-IOV network device plugin, which has no flag for it.
const (
	Register Registration = "register" // the plugin calls Register at device-plugins/kubelet.sock
	Watcher  Registration = "watcher"  // the kubelet's plugin watcher finds the socket in plugins_registry
	Auto     Registration = "auto"     // Watcher if the directory plugins_registry exists, otherwise Register
)

// MarshalText returns the flag's value.
func (r Registration) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText accepts the three values.
func (r *Registration) UnmarshalText(text []byte) error {
	switch way := Registration(text); way {
	case Auto, Register, Watcher:
		*r = way
		return nil
	default:
		return fmt.Errorf("want %s, %s or %s", Auto, Register, Watcher)
	}
}

func (r Registration) watched(kubeletDir string) bool {
	info, err := os.Stat(filepath.Join(kubeletDir, registryFolder))
	return r == Watcher || r == Auto && err == nil && info.IsDir()
}

// introduction answers the plugin watcher on a socket that also serves the device plugin API
// (pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).
type introduction struct {
	registration.UnimplementedRegistrationServer
	resource string
	found    chan<- error // must have room for the first answer
}

// GetInfo identifies the plugin. The endpoint is empty, which means the socket of the call: the kubelet may
// have another path to the directory.
func (i *introduction) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DevicePlugin,
		Name:              i.resource,
		SupportedVersions: []string{v1beta1.Version},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (i *introduction) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	var refused error
	if !status.GetPluginRegistered() {
		refused = fmt.Errorf("the kubelet refused the plugin: %s", status.GetError())
	}
	select {
	case i.found <- refused:
	default: // repeated notification after a rejection: this socket is already being closed
	}
	return &registration.RegistrationStatusResponse{}, nil
}
