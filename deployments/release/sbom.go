// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
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
