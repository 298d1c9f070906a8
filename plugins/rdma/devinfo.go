package rdma

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// deviceInfo tells Multus about a device (the device-info specification of k8snetworkplumbingwg; type DeviceInfo in
// network-attachment-definition-client, pkg/apis/k8s.cni.cncf.io/v1/types.go).
type deviceInfo struct {
	Type    string  `json:"type"`
	Version string  `json:"version"`
	PCI     pciInfo `json:"pci"`
}

type pciInfo struct {
	Address string `json:"pci-address"`
	RDMA    string `json:"rdma-device,omitempty"` // names, separated by commas
}

// devinfoPath is where Multus looks: it makes the name of resource and device ID (getDPDeviceInfoPath in
// network-attachment-definition-client, pkg/utils/cniconfig.go).
func (h Host) devinfoPath(resource, id string) string {
	name := strings.ReplaceAll(resource, "/", "-") + "-" + strings.ReplaceAll(id, "/", "-") + "-device.json"
	return filepath.Join(h.DevinfoDir, name)
}

// writeDevinfo puts a device's file in place before the kubelet goes on. It replaces the one before in one step, so that
// nobody ever reads half a file.
//
// The stock plugin removes the files of all its devices when it starts and when it stops, those of devices in running
// pods too, although Multus reads them again when a container restarts. Here a file stays until the device is allocated
// anew: for a device that nobody has, nobody reads it.
func (h Host) writeDevinfo(resource, id string, rdma []string) error {
	content, err := json.Marshal(deviceInfo{
		Type:    "pci",
		Version: "1.1.0",
		PCI:     pciInfo{Address: id, RDMA: strings.Join(rdma, ",")},
	})
	if err != nil {
		return fmt.Errorf("write device-info of %s: %w", id, err)
	}
	if err := os.MkdirAll(h.DevinfoDir, 0o755); err != nil {
		return fmt.Errorf("write device-info of %s: %w", id, err)
	}
	if err := replaceFile(h.devinfoPath(resource, id), content, 0o444); err != nil {
		return fmt.Errorf("write device-info of %s: %w", id, err)
	}
	return nil
}

// replaceFile writes a file under another name first. That name does not hold the device ID: Multus also looks for files
// whose name does.
func replaceFile(file string, content []byte, mode os.FileMode) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(file), ".tandem-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	if _, err = temporary.Write(content); err != nil {
		_ = temporary.Close()
		return err
	}
	if err = temporary.Close(); err != nil {
		return err
	}
	if err = os.Chmod(temporary.Name(), mode); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}
