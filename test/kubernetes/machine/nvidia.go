// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/test/nvml"
)

// installNVML installs the stand-in for NVIDIA's library in a driver root, and returns the GPUs that it
// shows.
func (m *Machine) installNVML(sys fs.FS, library string) (map[string]Device, error) {
	if library == "" {
		return nil, errors.New("install NVML: there is no stand-in for it")
	}
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
	if library, err = filepath.Abs(library); err != nil {
		return nil, err
	}
	libraries := m.Path("driver/usr/lib64")
	return gpus, errors.Join(shown.Write(m.Path("nvml")), os.MkdirAll(libraries, 0o755),
		os.Symlink(library, filepath.Join(libraries, "libnvidia-ml.so.1")),
		os.WriteFile(filepath.Join(libraries, "libnvidia-ml.so."+shown.Driver), nil, 0o755),
		os.WriteFile(filepath.Join(libraries, "libcuda.so."+shown.Driver), nil, 0o755))
}

// Driver returns the flags and variables of a daemon with the path of the library, and of the library with
// the machine; none for AMD's GPUs.
func (m *Machine) Driver() (flags, variables []string) {
	if m.GPU != NVIDIA {
		return nil, nil
	}
	return []string{"--driver-root-ctr-path=" + m.Path("driver")},
		[]string{nvml.FileVariable + "=" + m.Path("nvml")}
}
