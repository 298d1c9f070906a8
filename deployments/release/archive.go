// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// sumsFile contains the checksums of all artefacts in the format of "sha256sum -c".
const sumsFile = "SHA256SUMS"

// archive writes the archive of a build.
func (r release) archive(b build, files []file) error {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		if f.name == "" {
			continue
		}
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode()), Size: int64(len(f.content)), ModTime: r.made,
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(r.path(r.archiveName(b)), compressed(packed.Bytes()), 0o644)
}

// archiveName returns tandem_VERSION_OS_ARCH.tar.gz.
func (r release) archiveName(b build) string {
	return fmt.Sprintf("tandem_%s_%s_%s.tar.gz", r.version, b.os, b.arch)
}

// checksums writes the checksums of all files in a directory to sumsFile there, and returns the content.
func checksums(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return "", err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("sum %s: %w", entry.Name(), err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return sums.String(), os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}

// krewFile is the manifest of the kubectl plugin for the package manager Krew
// (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest).
const krewFile = "krew.yaml"

// downloads is the URL of an archive, by version and file name.
const downloads = "https://github.com/tandem-k8s/tandem/releases/download/v%s/%s"

// writeKrew writes the manifest for existing archives. The JSON is valid YAML.
func (r release) writeKrew() error {
	var platforms []any
	for _, b := range r.builds {
		content, err := os.ReadFile(r.path(r.archiveName(b)))
		if err != nil {
			return fmt.Errorf("sum the archive for Krew: %w", err)
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": b.os, "arch": b.arch}},
			"uri":      fmt.Sprintf(downloads, r.version, r.archiveName(b)),
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(content)),
			"files": []any{
				map[string]string{"from": "tandem", "to": "."}, map[string]string{"from": "LICENSE", "to": "."},
			},
			"bin": "tandem", // Krew makes the link kubectl-tandem to it
		})
	}
	manifest, err := json.MarshalIndent(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]string{"name": "tandem"},
		"spec": map[string]any{
			"version":          "v" + r.version,
			"homepage":         "https://github.com/tandem-k8s/tandem",
			"shortDescription": "Show GPUs and RDMA VFs on the same PCIe switch",
			"description": "Queries Tandem's daemons on the nodes of a cluster: the free devices, the reason for a " +
				"pod's devices, and problems that prevent GPUs and VFs on the same PCIe switch.",
			"platforms": platforms,
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krewFile), append(manifest, '\n'), 0o644)
}

// pack writes the deb and rpm packages of a build, under the conventional file names.
func (r release) pack(b build, contents []file) error {
	dir, err := os.MkdirTemp("", "tandem-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var list files.Contents
	for i, f := range contents {
		if f.installed == "" {
			continue
		}
		if f.link != "" {
			list = append(list, &files.Content{Source: f.link, Destination: f.installed, Type: files.TypeSymlink,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", MTime: r.made}})
			continue
		}
		source := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(source, f.content, 0o600); err != nil {
			return err
		}
		list = append(list, &files.Content{
			Source: source, Destination: f.installed, Packager: f.packager,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode(), MTime: r.made},
		})
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.packAs(format, b, list); err != nil {
			return fmt.Errorf("make the %s for %s: %w", format, b.arch, err)
		}
	}
	return nil
}

func (r release) packAs(format string, b build, list files.Contents) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "tandem", Arch: b.arch, Platform: b.os, Version: r.version, MTime: r.made,
		Section: "admin", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The authors of Tandem <https://github.com/tandem-k8s/tandem/issues>",
		Vendor:      "Tandem",
		Homepage:    "https://github.com/tandem-k8s/tandem",
		Description: "Show, record and plan GPUs and RDMA VFs on the same PCIe switch",
	})
	info.Contents = list
	info.RPM.BuildHost = "tandem" // reproducible, unlike the host name
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	out, err := os.Create(r.path(packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	err = packager.Package(info, out)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
