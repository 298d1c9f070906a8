// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// Keys of the OCI image specification (annotations.md).
const (
	labelVersion  = "org.opencontainers.image.version"
	labelRevision = "org.opencontainers.image.revision"
)

// labelsOf returns the labels of the image with the programs of some directories. All programs must have one
// version.
func labelsOf(folders []string) (map[string]string, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":         "tandem",
		"org.opencontainers.image.description":   "A container's GPUs and RDMA VFs on the same PCIe switch",
		"org.opencontainers.image.source":        "https://github.com/tandem-k8s/tandem",
		"org.opencontainers.image.documentation": "https://github.com/tandem-k8s/tandem/tree/main/docs",
		// Tandem, busybox and glibc.
		"org.opencontainers.image.licenses": "Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later",
	}
	var programs []string
	for _, folder := range folders {
		programs = append(programs, filepath.Join(folder, "tandem"))
	}
	return labels, addSource(labels, programs, "make build")
}

// addSource adds the version and commit of programs to labels. All programs must have one version. An error
// for an unreadable program contains the build command.
func addSource(labels map[string]string, programs []string, build string) error {
	for i, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read the version of %s: %w; run %s", program, err, build)
		}
		own := version.Of(info)
		if i > 0 && own != labels[labelVersion] {
			return fmt.Errorf("%s is of version %s and %s of %s: build both from one source",
				program, own, programs[0], labels[labelVersion])
		}
		labels[labelVersion] = own
		if commit, _ := version.Source(info); commit != "" {
			labels[labelRevision] = commit
		}
	}
	return nil
}

// withTag returns the name of the image, with the tag of the version if the name has no tag.
func withTag(name string, labels map[string]string) string {
	if strings.Contains(path.Base(name), ":") {
		return name
	}
	return name + ":" + version.Tag(labels[labelVersion])
}
