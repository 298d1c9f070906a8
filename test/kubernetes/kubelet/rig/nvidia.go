// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/nvml"
)

// readNVIDIA returns the GPUs that the NVML stand-in reports for a machine.
func readNVIDIA(sys fs.FS) (map[string]Device, error) {
	shown, err := nvml.Record(sys)
	if err != nil {
		return nil, err
	}
	gpus := map[string]Device{}
	for _, gpu := range shown.GPUs {
		gpus[gpu.UUID] = Device{
			ID: gpu.UUID, Address: gpu.Address, Node: fmt.Sprint("nvidia", gpu.Minor), Name: gpu.Address.String(),
		}
	}
	return gpus, nil
}

// uuids returns the GPUs that NVIDIA's container runtime would add to a container.
func uuids(response node.Response) []string {
	return strings.FieldsFunc(response.Env["NVIDIA_VISIBLE_DEVICES"], func(r rune) bool { return r == ',' })
}

// installNVML installs the stand-in in a driver root, and returns the flags and variables with its path for
// tandem-gpu, and with the machine for the stand-in.
func (r *Rig) installNVML() (flags, variables []string, err error) {
	if r.setup.NVML == "" {
		return nil, nil, errors.New("install NVML: the set-up names no stand-in for it")
	}
	shown, err := nvml.Record(os.DirFS(r.path("sys")))
	if err != nil {
		return nil, nil, err
	}
	library, err := filepath.Abs(r.setup.NVML)
	if err != nil {
		return nil, nil, err
	}
	libraries := r.path("driver/usr/lib64")
	err = errors.Join(
		shown.Write(r.path("nvml")),
		os.MkdirAll(libraries, 0o755),
		os.Symlink(library, filepath.Join(libraries, "libnvidia-ml.so.1")),
	)
	return []string{"--driver-root-ctr-path=" + r.path("driver")},
		[]string{nvml.FileVariable + "=" + r.path("nvml")}, err
}
