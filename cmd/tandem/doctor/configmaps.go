// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// largestConfigMap is the limit of a ConfigMap's data (validation of core/v1 in Kubernetes).
const largestConfigMap = 1 << 20

// MountedConfig returns the configuration of VFs among the ConfigMaps that a kubelet has mounted for its
// pods, such as that of the SR-IOV network device plugin; "" for none that can be read. The error says that
// several differ.
func MountedConfig(kubeletDir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(kubeletDir, "pods/*/volumes/kubernetes.io~configmap/*/*"))
	if err != nil {
		return "", fmt.Errorf("find ConfigMaps in %s: %w", kubeletDir, err)
	}
	known := map[string]bool{"": true} // contents
	var all []string
	for _, name := range names {
		if content := configOfVFs(name); !known[content] {
			known[content], all = true, append(all, name)
		}
	}
	if len(all) > 1 {
		return "", fmt.Errorf("ConfigMaps of VFs differ: %s", strings.Join(all, ", "))
	}
	return strings.Join(all, ""), nil
}

// configOfVFs returns the content of a file with pools of VFs, "" for other files.
func configOfVFs(name string) string {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestConfigMap {
		return ""
	}
	var config struct {
		Pools []json.RawMessage `json:"resourceList"`
	}
	content, err := os.ReadFile(name)
	if err != nil || json.Unmarshal(content, &config) != nil || len(config.Pools) == 0 {
		return ""
	}
	return string(content)
}

// mounted is a remark about the origin of the VFs; "" for none.
func mounted(config string) string {
	if config == "" {
		return ""
	}
	return "The VFs are those of a pod's ConfigMap, " + config + "."
}
