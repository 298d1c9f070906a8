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

	"github.com/tandem-k8s/tandem/version"
)

// programs lists all programs of a release.
var programs = []string{
	"tandem", "tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager", "tandem-scheduler",
}

const (
	source  = "https://github.com/tandem-k8s/tandem"
	unknown = "NOASSERTION"
)

// part is a component of Tandem.
type part struct{ name, version, licence, purl string }

// writeSBOM writes the components of programs and image as SPDX 2.3.
func (r release) writeSBOM() error {
	modules, commit, err := r.modules()
	if err != nil {
		return err
	}
	base, err := imageParts(r.image)
	if err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	out, err := os.Create(r.path(fmt.Sprintf("tandem_%s.spdx.json", r.version)))
	if err != nil {
		return err
	}
	err = spdxjson.Write(r.document(commit, modules, base), out, spdxjson.Indent("  "))
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// modules returns the Go modules of all programs, sorted, and the commit of Tandem.
func (r release) modules() (parts []part, commit string, err error) {
	for _, b := range r.builds {
		for _, program := range programs {
			info, err := buildinfo.ReadFile(filepath.Join(b.dir, program))
			if err != nil {
				return nil, "", fmt.Errorf("read modules of %s: %w; run make build tandem-scheduler", program, err)
			}
			commit, _ = version.Source(info)
			parts = append(parts, part{
				"stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause",
				"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go"),
			})
			for _, module := range info.Deps {
				parts = append(parts, ofModule(module))
			}
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.version, b.version))
	})
	return slices.Compact(parts), commit, nil
}

func ofModule(m *debug.Module) part {
	if m.Replace != nil {
		m = m.Replace
	}
	return part{m.Path, m.Version, unknown, "pkg:golang/" + m.Path + "@" + m.Version}
}

// document returns the SBOM: Tandem, the modules of the programs, and the third-party programs of the image.
func (r release) document(commit string, modules, base []part) *spdx.Document {
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "tandem-" + r.version,
		DocumentNamespace: source + "/spdx/" + r.version + "/" + cmp.Or(commit, "unknown"),
		CreationInfo: &spdx.CreationInfo{
			Created:  r.made.UTC().Format("2006-01-02T15:04:05Z"),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "tandem-release-" + r.version}},
		},
	}
	location := "git+" + source
	if commit != "" {
		location += "@" + commit
	}
	own := part{"tandem", r.version, "Apache-2.0", "pkg:golang/github.com/tandem-k8s/tandem"}
	tandem := add(document, 0, own)
	tandem.PackageDownloadLocation = location
	relate(document, "DOCUMENT", "DESCRIBES", tandem.PackageSPDXIdentifier)
	for _, kind := range []struct {
		parts    []part
		relation string
	}{{modules, "DEPENDS_ON"}, {base, "CONTAINS"}} {
		for _, p := range kind.parts {
			added := add(document, len(document.Packages), p)
			relate(document, tandem.PackageSPDXIdentifier, kind.relation, added.PackageSPDXIdentifier)
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
