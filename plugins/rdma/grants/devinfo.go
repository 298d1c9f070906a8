// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// deviceInfo describes a device for Multus (the device-info specification of k8snetworkplumbingwg; type
// DeviceInfo in network-attachment-definition-client, pkg/apis/k8s.cni.cncf.io/v1/types.go).
type deviceInfo struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	PCI     *pciInfo  `json:"pci,omitempty"`
	VDPA    *vdpaInfo `json:"vdpa,omitempty"`
}

type pciInfo struct {
	Address string `json:"pci-address"`
	RDMA    string `json:"rdma-device,omitempty"` // names, separated by commas
}

type vdpaInfo struct {
	Parent  string `json:"parent-device"` // the vDPA device's name
	Driver  string `json:"driver,omitempty"`
	Path    string `json:"path,omitempty"`
	Address string `json:"pci-address"`
}

func newDeviceInfo(d pools.Device, g *Grant) deviceInfo {
	info := deviceInfo{Version: "1.1.0"}
	if g.VDPA == nil {
		info.Type, info.PCI = "pci", &pciInfo{Address: d.ID, RDMA: strings.Join(g.RDMA, ",")}
		return info
	}
	info.Type, info.VDPA = "vdpa", &vdpaInfo{Parent: g.VDPA.Name, Driver: g.VDPA.Kind, Address: d.ID}
	if g.VDPA.Kind == "vhost" {
		info.VDPA.Path = g.VDPA.Node
	}
	return info
}

// DevinfoPath returns the path at which Multus expects the device-info file of a device (getDPDeviceInfoPath
// in network-attachment-definition-client, pkg/utils/cniconfig.go).
func (h Host) DevinfoPath(resource, id string) string {
	name := strings.ReplaceAll(resource, "/", "-") + "-" + strings.ReplaceAll(id, "/", "-") + "-device.json"
	return filepath.Join(h.DevinfoDir, name)
}

// RestoreDevinfo writes the missing files of a pool's healthy devices: running pods refer to the files, a
// boot removes them, and the kubelet does not allocate the devices again. It stops at the first error.
func (h Host) RestoreDevinfo(pool pools.Pool) error {
	if pool.Resource.DeviceType != pools.NetDevice {
		return nil
	}
	for _, d := range pool.Devices {
		if _, err := os.Stat(h.DevinfoPath(pool.Name, d.ID)); err == nil || d.Fault != "" {
			continue
		}
		if err := h.WriteDevinfo(pool, d, h.Grant(d, pool.Resource)); err != nil {
			return err
		}
	}
	return nil
}

// TidyDevinfo removes files that a power failure has damaged, and temporary files of killed processes. Must
// be called at the start, before RestoreDevinfo.
func (h Host) TidyDevinfo(pool pools.Pool) error {
	problems := []error{h.Disk.RemoveTemporaries(h.DevinfoDir, system.Abandoned)}
	for _, d := range pool.Devices {
		name := h.DevinfoPath(pool.Name, d.ID)
		if content, err := os.ReadFile(name); err == nil && !json.Valid(content) {
			problems = append(problems, h.Disk.Remove(name))
		}
	}
	return errors.Join(problems...)
}

// WriteDevinfo writes a device's file, for resources that Multus uses, before Allocate returns. The
// replacement is atomic, so that readers never see a partial file.
//
// The stock plugin removes the files of all its devices when it starts and stops, even those of running pods,
// although Multus reads the files again when a container restarts. Tandem keeps a file until the next
// allocation of the device, and creates all files at the start, because a boot removes the folder but not the
// pods. Nothing reads the file of a free device.
func (h Host) WriteDevinfo(pool pools.Pool, d pools.Device, g *Grant) error {
	if pool.Resource.DeviceType != pools.NetDevice {
		return nil
	}
	content, err := json.Marshal(newDeviceInfo(d, g))
	if err == nil {
		err = h.Disk.Update(h.DevinfoPath(pool.Name, d.ID), content, 0o444, 0o755)
	}
	if err != nil {
		return fmt.Errorf("write device-info of %s: %w", d.ID, err)
	}
	return nil
}
