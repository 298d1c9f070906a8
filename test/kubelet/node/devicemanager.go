package node

import (
	_ "unsafe" // for go:linkname

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// newDeviceManager is devicemanager.NewManagerImpl with a socket path of our own: the exported function always takes
// /var/lib/kubelet. The file devicemanager.s beside this one lets the compiler accept a function without a body.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(log klog.Logger, socket string, machine []cadvisor.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error)
