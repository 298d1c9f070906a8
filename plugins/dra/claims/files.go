// SPDX-License-Identifier: Apache-2.0

package claims

import (
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

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

func (p *Preparer) specPath(claim types.UID) string {
	return filepath.Join(p.CDIDir, coordination.ClaimSpecName(string(claim)))
}

func (p *Preparer) pairsPath(group string) string {
	return filepath.Join(p.Host.PairsDir, group+".json")
}

// listSpecs lists the claims that have a CDI spec.
func (p *Preparer) listSpecs() ([]types.UID, error) {
	uids, err := coordination.ClaimSpecs(p.CDIDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	claims := make([]types.UID, 0, len(uids))
	for _, uid := range uids {
		claims = append(claims, types.UID(uid))
	}
	return claims, nil
}

// writeSpec writes the CDI spec of a claim unless it exists. It omits groups without edits, which CDI
// rejects, and writes no spec if all groups are empty.
func (p *Preparer) writeSpec(c Claim, environments map[string]*environment) error {
	var devices []specs.Device
	for _, first := range c.firstOfGroups() {
		if edits := environments[first.Group].edits.CDI(); !isEmpty(edits) {
			name := cdiDevice(c.UID, first.requestName())
			devices = append(devices, specs.Device{Name: name, ContainerEdits: edits})
		}
	}
	if len(devices) == 0 {
		return p.Host.Disk.Remove(p.specPath(c.UID))
	}
	return p.saveSpec(c, devices)
}

// saveSpec saves a CDI spec of a claim. Runtimes take no device from a spec without devices.
func (p *Preparer) saveSpec(c Claim, devices []specs.Device) error {
	spec := specs.Spec{Version: cdiVersion, Kind: pool.Driver + "/" + cdiClass, Devices: devices}
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI spec of %s: %w", c, err)
	}
	// runtimes reread all specs after each write
	return p.Host.Disk.Update(p.specPath(c.UID), content, 0o600, 0o755)
}

// removeFiles removes the files of claims, except for pairs files of groups that remaining claims share.
func (p *Preparer) removeFiles(gone, left []Claim) error {
	for _, c := range gone {
		if err := p.Host.Disk.Remove(p.specPath(c.UID)); err != nil {
			return err
		}
		p.forgetUnrestored(c)
		for _, first := range c.firstOfGroups() {
			if len(inGroup(left, first.Group)) > 0 {
				continue
			}
			if err := p.Host.Disk.Remove(p.pairsPath(first.Group)); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportUnrestored returns the error of a prepared claim whose files cannot be written, or nil if all files
// exist. The next repair tries again.
func (p *Preparer) reportUnrestored(c Claim, cause error) error {
	if missing := p.findMissing(c); missing != "" {
		return fmt.Errorf("restore %s of %s: %w", missing, c, cause)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := cause.Error(); p.outdated[c.UID] != text {
		p.outdated[c.UID] = text
		p.Log.Warn("a prepared claim keeps its existing CDI spec",
			"claim", c.Namespace+"/"+c.Name, "error", cause)
	}
	return nil
}

// forgetUnrestored ends the complaint about a claim that reportUnrestored logged.
func (p *Preparer) forgetUnrestored(c Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.outdated, c.UID)
}

// findMissing returns the name of a missing or incomplete file of a prepared claim, or "": the CDI spec, with
// all CDI devices that were reported to the kubelet, or a pairs file that the spec mounts.
func (p *Preparer) findMissing(c Claim) string {
	told := c.ownCDI()
	if len(told) == 0 {
		return ""
	}
	name := p.specPath(c.UID)
	content, err := os.ReadFile(name)
	var spec specs.Spec
	if err != nil || json.Unmarshal(content, &spec) != nil {
		return name
	}
	for _, device := range spec.Devices {
		delete(told, parser.QualifiedName(pool.Driver, cdiClass, device.Name))
		for _, mount := range device.ContainerEdits.Mounts {
			if filepath.Dir(mount.HostPath) != p.Host.PairsDir {
				continue
			}
			if _, err := os.Stat(mount.HostPath); err != nil {
				return mount.HostPath
			}
		}
	}
	if len(told) > 0 {
		return name
	}
	return ""
}

// tidySpecs removes the CDI specs of claims that are not prepared.
func (p *Preparer) tidySpecs(known []Claim) error {
	with, err := p.listSpecs()
	problems := []error{err}
	for _, uid := range with {
		if !(Claim{UID: uid}).isIn(known) {
			problems = append(problems, p.Host.Disk.Remove(p.specPath(uid)))
		}
	}
	return errors.Join(problems...)
}

// tidyPairs removes the pairs files of claims that are not prepared.
func (p *Preparer) tidyPairs(known []Claim) error {
	entries, err := os.ReadDir(p.Host.PairsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pairs files: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		group := strings.TrimSuffix(entry.Name(), ".json")
		if len(inGroup(known, group)) == 0 {
			problems = append(problems, p.Host.Disk.Remove(filepath.Join(p.Host.PairsDir, entry.Name())))
		}
	}
	return errors.Join(problems...)
}

// A claim's CDI spec has one device for each group of its requests, named after the group's first request.
// The file name contains the claim's UID, so that files of claims that are not prepared can be removed.
const (
	cdiClass   = "claim"
	cdiVersion = "0.5.0" // the first with hostPath; later features are not used
)

// cdiDevice returns the name of the CDI device for a group, given the group's first request.
func cdiDevice(claim types.UID, request string) string { return string(claim) + "-" + request }

// setCDINames sets the CDI devices of a claim's devices: all of the group with the first device of each
// request, so that a container with the request gets each of them once.
func (c Claim) setCDINames(environments map[string]*environment) {
	for i, d := range c.Devices {
		c.Devices[i].CDI = nil
		if slices.ContainsFunc(c.Devices[:i], func(e Prepared) bool { return e.requestName() == d.requestName() }) {
			continue
		}
		edits := &environments[d.Group].edits
		if !isEmpty(edits.CDI()) {
			first := slices.IndexFunc(c.Devices, func(e Prepared) bool { return e.Group == d.Group })
			name := parser.QualifiedName(pool.Driver, cdiClass, cdiDevice(c.UID, c.Devices[first].requestName()))
			c.Devices[i].CDI = []string{name}
		}
		c.Devices[i].CDI = append(c.Devices[i].CDI, edits.Named.Devices...)
	}
}

func isEmpty(edits specs.ContainerEdits) bool {
	return len(edits.Env)+len(edits.DeviceNodes)+len(edits.Mounts) == 0
}

// ownCDI returns the CDI devices of the claim's own spec that were reported to the kubelet.
func (c Claim) ownCDI() map[string]bool {
	own := map[string]bool{}
	for _, d := range c.Devices {
		for _, name := range d.CDI {
			if strings.HasPrefix(name, pool.Driver+"/"+cdiClass+"=") {
				own[name] = true
			}
		}
	}
	return own
}

// environment contains the edits and files for the containers of one group, not yet written.
type environment struct {
	edits container.Edits
	told  *pairs.File // nil if no resource requests pairs
	file  string      // path of the pairs file
	infos []info
}

// info is the information about a VF for Multus.
type info struct {
	pool   pools.Pool
	device pools.Device
	grant  *rdma.Grant
}

// writeFiles writes the pairs file, and the device-info files for Multus.
func (e *environment) writeFiles(host rdma.Host) error {
	for _, i := range e.infos {
		if err := host.WriteDevinfo(i.pool, i.device, i.grant); err != nil {
			return err
		}
	}
	if e.told == nil {
		return nil
	}
	return e.told.Write(host.Disk, e.file)
}
