// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// A claim's CDI spec has one device for each group of its requests, named after the first of them. The file's
// name says whose it is: what there is of claims that are not prepared is removed.
const (
	cdiClass   = "claim"
	cdiVersion = "0.5.0" // the first with hostPath; nothing of a later one is used
	specPrefix = pool.Driver + "-" + cdiClass + "_"
	specSuffix = ".json"
)

func (p *Preparer) specPath(claim types.UID) string {
	return filepath.Join(p.CDIDir, specPrefix+string(claim)+specSuffix)
}

// claimOfSpec is the claim that a file of the CDI folder is the spec of.
func claimOfSpec(name string) (claim types.UID, ok bool) {
	uid, ours := strings.CutPrefix(name, specPrefix)
	uid, json := strings.CutSuffix(uid, specSuffix)
	return types.UID(uid), ours && json && uid != ""
}

// specs lists the claims that have a CDI spec.
func (p *Preparer) specs() ([]types.UID, error) {
	entries, err := os.ReadDir(p.CDIDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var claims []types.UID
	for _, entry := range entries {
		if claim, ok := claimOfSpec(entry.Name()); ok {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// cdiDevice names the CDI device for a group of a claim's requests, of which this is the first.
func cdiDevice(claim types.UID, request string) string { return string(claim) + "-" + request }

// writeSpec puts the CDI spec of a claim in place, unless it is there. A group without any edits has no
// device, for CDI refuses such a one, and where no group has any there is no spec.
func (p *Preparer) writeSpec(c Claim, environments map[string]*environment) error {
	spec := specs.Spec{Version: cdiVersion, Kind: pool.Driver + "/" + cdiClass}
	for _, first := range c.firsts() {
		if edits := environments[first.Group].edits.CDI(); !isEmpty(edits) {
			name := cdiDevice(c.UID, first.request())
			spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: edits})
		}
	}
	name := p.specPath(c.UID)
	if len(spec.Devices) == 0 {
		return p.disk.remove(name)
	}
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI spec of %s: %w", c, err)
	}
	if before, err := os.ReadFile(name); err == nil && bytes.Equal(before, content) {
		return nil // runtimes read all specs again whenever one is written
	}
	if err := os.MkdirAll(p.CDIDir, 0o755); err != nil {
		return fmt.Errorf("write CDI spec of %s: %w", c, err)
	}
	return p.disk.replace(name, content)
}

// firsts are the first device of each group.
func (c Claim) firsts() []Prepared {
	var firsts []Prepared
	for _, d := range c.Devices {
		if !slices.ContainsFunc(firsts, func(f Prepared) bool { return f.Group == d.Group }) {
			firsts = append(firsts, d)
		}
	}
	return firsts
}

// names sets the CDI devices that stand for a claim's devices: with the first device of each request all of
// its group, so that a container that has the request is given each of them once.
func (c Claim) names(environments map[string]*environment) {
	for i, d := range c.Devices {
		c.Devices[i].CDI = nil
		if slices.ContainsFunc(c.Devices[:i], func(e Prepared) bool { return e.request() == d.request() }) {
			continue
		}
		edits := &environments[d.Group].edits
		if !isEmpty(edits.CDI()) {
			first := slices.IndexFunc(c.Devices, func(e Prepared) bool { return e.Group == d.Group })
			name := parser.QualifiedName(pool.Driver, cdiClass, cdiDevice(c.UID, c.Devices[first].request()))
			c.Devices[i].CDI = []string{name}
		}
		c.Devices[i].CDI = append(c.Devices[i].CDI, edits.Named.Devices...)
	}
}

func isEmpty(edits specs.ContainerEdits) bool {
	return len(edits.Env)+len(edits.DeviceNodes)+len(edits.Mounts) == 0
}
