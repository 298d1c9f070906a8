// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

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
