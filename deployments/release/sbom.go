// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// images are the tarballs of the images; "" for none.
type images struct{ tandem, scheduler string }

// product is an image, or the programs in it.
type product struct {
	name     string
	programs []string
	image    string // tarball; "" for none
}

// products returns the products of a release. Archives and packages contain programs of the first.
func (i images) products() []product {
	return []product{
		{"tandem", []string{
			"tandem", "tandem-lab", "tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager",
		}, i.tandem},
		{"tandem-scheduler", []string{"tandem-scheduler"}, i.scheduler},
	}
}

const (
	module  = "github.com/tandem-k8s/tandem"
	source  = "https://" + module
	unknown = "NOASSERTION"
)

// part is a component of Tandem.
type part struct{ name, version, licence, purl string }

// writeSBOMs writes an SBOM of each product.
func (r release) writeSBOMs(all images) error {
	for _, p := range all.products() {
		if err := r.writeSBOM(p); err != nil {
			return fmt.Errorf("write the SBOM of %s: %w", p.name, err)
		}
	}
	return nil
}

// writeSBOM writes the components of a product as SPDX 2.3.
func (r release) writeSBOM(p product) error {
	modules, commit, err := r.modules(p)
	if err != nil {
		return err
	}
	base, err := imageParts(p.image)
	if err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	out, err := os.Create(r.path(fmt.Sprintf("%s_%s.spdx.json", p.name, r.version)))
	if err != nil {
		return err
	}
	err = spdxjson.Write(r.document(p.name, commit, modules, base), out, spdxjson.Indent("  "))
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// modules returns the Go modules of a product's programs on all platforms, sorted, and the commit of Tandem.
func (r release) modules(p product) (parts []part, commit string, err error) {
	for _, b := range r.builds {
		for _, program := range p.programs {
			if !b.isProgram(program) {
				continue
			}
			info, err := buildinfo.ReadFile(filepath.Join(b.dir, program))
			if err != nil {
				return nil, "", fmt.Errorf("read modules of %s: %w; run make build tandem-scheduler", program, err)
			}
			commit, _ = version.Source(info)
			goVersion := strings.TrimPrefix(info.GoVersion, "go")
			parts = append(parts, part{"stdlib", goVersion, "BSD-3-Clause", purl("stdlib", goVersion)})
			for _, m := range info.Deps {
				parts = append(parts, r.ofModule(m))
			}
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.version, b.version))
	})
	return slices.Compact(parts), commit, nil
}

// ofModule returns a module as it was built: the replacement, unless that is a folder of this repository.
func (r release) ofModule(m *debug.Module) part {
	switch {
	case m.Replace == nil:
	case strings.HasPrefix(m.Replace.Path, "."):
		return part{m.Path, r.version, "Apache-2.0", purl(m.Path, r.version)}
	default:
		m = m.Replace
	}
	return part{m.Path, m.Version, unknown, purl(m.Path, m.Version)}
}

// purl returns the package URL of a Go module: path in lower case, version percent-encoded
// (https://github.com/package-url/purl-spec).
func purl(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// document returns the SBOM: the product, the modules of its programs, and the third-party programs of the
// image.
func (r release) document(name, commit string, modules, base []part) *spdx.Document {
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      name + "-" + r.version,
		DocumentNamespace: source + "/spdx/" + name + "/" + r.version + "/" + cmp.Or(commit, "unknown"),
		CreationInfo: &spdx.CreationInfo{
			Created:  r.made.UTC().Format("2006-01-02T15:04:05Z"),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "tandem-release-" + r.version}},
		},
	}
	location := "git+" + source
	if commit != "" {
		location += "@" + commit
	}
	own := add(document, 0, part{name, r.version, "Apache-2.0", purl(module, r.version)})
	own.PackageDownloadLocation = location
	relate(document, "DOCUMENT", "DESCRIBES", own.PackageSPDXIdentifier)
	for _, kind := range []struct {
		parts    []part
		relation string
	}{{modules, "DEPENDS_ON"}, {base, "CONTAINS"}} {
		for _, p := range kind.parts {
			added := add(document, len(document.Packages), p)
			relate(document, own.PackageSPDXIdentifier, kind.relation, added.PackageSPDXIdentifier)
		}
	}
	return document
}

func add(document *spdx.Document, number int, p part) *spdx.Package {
	added := &spdx.Package{
		PackageName: p.name, PackageVersion: p.version,
		PackageSPDXIdentifier:   common.ElementID(fmt.Sprintf("Package-%d", number)),
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: p.licence,
		PackageCopyrightText: unknown,
	}
	if p.purl != "" {
		added.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: p.purl,
		}}
	}
	document.Packages = append(document.Packages, added)
	return added
}

func relate(document *spdx.Document, from common.ElementID, relation string, to common.ElementID) {
	document.Relationships = append(document.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relation,
		RefB: common.DocElementID{ElementRefID: to},
	})
}

// thirdParty lists the third-party programs in the image by file name, with a pattern for the version in the
// file.
var thirdParty = map[string]struct {
	part
	version *regexp.Regexp
}{
	"busybox": {
		part{name: "busybox", licence: "GPL-2.0-only"}, regexp.MustCompile(`BusyBox v([\d.]+ \([^)]*\))`),
	},
	"libc.so.6": {
		part{name: "glibc", licence: "LGPL-2.1-or-later"}, regexp.MustCompile(`GNU C Library \(([^)]*)\)`),
	},
}

// imageParts returns the third-party programs in the layers of an image. Without a tarball ("") it returns
// none.
func imageParts(image string) (parts []part, err error) {
	if image == "" {
		return nil, nil
	}
	err = eachFile(image, func(_ string, r io.Reader) error {
		blob := bufio.NewReader(r)
		if magic, _ := blob.Peek(2); string(magic) != "\x1f\x8b" {
			return nil // a manifest
		}
		layer, err := gzip.NewReader(blob)
		if err != nil {
			return err
		}
		return each(layer, func(name string, r io.Reader) error {
			program, ok := thirdParty[path.Base(name)]
			if !ok {
				return nil
			}
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			found := program.part
			if v := program.version.FindSubmatch(content); v != nil {
				found.version = string(v[1])
			}
			if !slices.Contains(parts, found) {
				parts = append(parts, found)
			}
			return nil
		})
	})
	return parts, err
}

// eachFile calls visit for each regular file of a tarball.
func eachFile(tarball string, visit func(name string, r io.Reader) error) error {
	in, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer in.Close()
	return each(in, visit)
}

// each calls visit for each regular file of a tar stream.
func each(in io.Reader, visit func(name string, r io.Reader) error) error {
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeReg:
			if err := visit(header.Name, r); err != nil {
				return err
			}
		}
	}
}
