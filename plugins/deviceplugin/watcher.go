package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registryFolder is where the kubelet's plugin watcher looks for sockets
// (DefaultKubeletPluginsRegistrationDirName in pkg/kubelet/config/defaults.go). The kubelet removes none of
// them when it starts.
const registryFolder = "plugins_registry"

// Registration is how the kubelet gets to know a plugin: one way at a time, for it would take two for two
// plugins.
type Registration string

// The ways. Auto is what the SR-IOV network device plugin does, which has no flag for it.
const (
	Register Registration = "register" // the plugin calls Register at device-plugins/kubelet.sock
	Watcher  Registration = "watcher"  // the kubelet's plugin watcher finds its socket in plugins_registry
	Auto     Registration = "auto"     // Watcher where the folder plugins_registry exists, else Register
)

// MarshalText prints the way as the flag spells it.
func (r Registration) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText accepts the three ways.
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

// introduction answers the plugin watcher on a socket of ours, which serves the device plugin too
// (pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).
type introduction struct {
	registration.UnimplementedRegistrationServer
	resource string
	found    chan<- error // has room for the first answer
}

// GetInfo says who is there. The endpoint is left empty, which stands for the socket on which the kubelet
// asks: it may know our folder by another path than we do.
func (i *introduction) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DevicePlugin,
		Name:              i.resource,
		SupportedVersions: []string{v1beta1.Version},
	}, nil
}

// NotifyRegistrationStatus is told what the kubelet made of it.
func (i *introduction) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	var refused error
	if !status.GetPluginRegistered() {
		refused = fmt.Errorf("the kubelet refused the plugin: %s", status.GetError())
	}
	select {
	case i.found <- refused:
	default: // a kubelet that comes again after a refusal: this socket is being given up
	}
	return &registration.RegistrationStatusResponse{}, nil
}
