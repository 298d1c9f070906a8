// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
)

// krewFile is the manifest of kubectl's plugin for Krew, the package manager for such plugins
// (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest).
const krewFile = "krew.yaml"

// downloads is the URL of a version's archives.
const downloads = "https://github.com/tandem-k8s/tandem/releases/download/v%s/%s"

// writeKrew describes the archives, which must exist. JSON is valid YAML.
func (r release) writeKrew() error {
	var platforms []any
	for _, b := range r.builds {
		content, err := os.ReadFile(r.path(r.archiveName(b)))
		if err != nil {
			return fmt.Errorf("sum the archive for Krew: %w", err)
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": "linux", "arch": b.arch}},
			"uri":      fmt.Sprintf(downloads, r.version, r.archiveName(b)),
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(content)),
			"files": []any{
				map[string]string{"from": "tandem", "to": "."}, map[string]string{"from": "LICENSE", "to": "."},
			},
			"bin": "tandem", // Krew creates the link kubectl-tandem
		})
	}
	manifest, err := json.MarshalIndent(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]string{"name": "tandem"},
		"spec": map[string]any{
			"version":          "v" + r.version,
			"homepage":         "https://github.com/tandem-k8s/tandem",
			"shortDescription": "Show GPUs and RDMA VFs on the same PCIe switch",
			"description": "Asks Tandem's daemons on the nodes of a cluster: what is free, why " +
				"a pod got its devices, and what " +
				"stands between a node and GPUs and VFs on the same PCIe switch.",
			"platforms": platforms,
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krewFile), append(manifest, '\n'), 0o644)
}
