// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// CDIDirs are the folders in which container runtimes look for specs.
var CDIDirs = []string{"/etc/cdi", "/var/run/cdi"}

// cdiVersion is the stock plugin's version; no later feature is used.
const cdiVersion = "0.5.0"

const (
	cdiPrefix     = "sriov-dp-"
	cdiAnnotation = "cdi.k8s.io/" // AnnotationPrefix in pkg/cdi/annotations.go of container-device-interface
	// of the specs of shared HCAs, for any prefix of the resource (cdiResourcePrefix in pkg/resources/server.go
	// of the RDMA shared device plugin)
	sharedVendor = "nvidia.com"
)

// cdiPool is a pool in the words of CDI.
type cdiPool struct {
	vendor, class string // of the pool's devices: "nvidia.com/net-pci"
	file          string // name of its spec
	annotation    string // key of the annotation with the pool's devices
}

// cdiPoolOf returns the CDI names of a pool. The stock plugin uses one annotation for all pools of a prefix
// and device type, and the kubelet keeps only the first one (sriov-network-device-plugin issue 731). Tandem
// uses that annotation for the first pool, and other keys for the other pools.
func cdiPoolOf(pool pools.Pool) cdiPool {
	vendor, resource, _ := strings.Cut(pool.Name, "/")
	p := cdiPool{vendor: vendor, class: cdiClasses[pool.Resource.DeviceType]}
	p.file = cdiPrefix + vendor + "-" + p.class + "-" + resource + ".yaml"
	if pool.Resource.DeviceType == pools.SharedHCA {
		p.vendor, p.file = sharedVendor, sharedVendor+"_"+resource+".yaml"
	}
	key := p.vendor + "_" + p.class
	if !pool.First {
		key += "_" + resource
	}
	if len(key) > pools.MaxName { // the stock plugin refuses such a pod
		sum := sha256.Sum256([]byte(pool.Name))
		key = fmt.Sprintf("%s%x", cdiPrefix, sum[:8])
	}
	p.annotation = cdiAnnotation + key
	return p
}

var cdiClasses = map[pools.DeviceType]string{
	pools.NetDevice: "net-pci", pools.AuxNetDevice: "net-sf", pools.Accelerator: "net-accel",
	pools.SharedHCA: "net-rdma",
}

// CleanUp removes the specs of the stock plugins that a configuration replaces, and this plugin's own, except
// those of existing pools: another instance may use them, and restarting containers need them. The RDMA
// shared device plugin removes all files of its vendor, which is also the vendor of NVIDIA's GPUs
// (CleanupSpecs in pkg/cdi/cdi.go there).
func (c *CDI) CleanUp(config *pools.Config, kept ...pools.Pool) (err error) {
	some, all := config.Shares()
	if !all {
		err = c.removeSpecs(cdiPrefix+"*", kept, func(string) bool { return true })
	}
	if !some {
		return err
	}
	return errors.Join(err, c.removeSpecs(sharedVendor+"_*", kept, func(file string) bool {
		var spec specs.Spec
		content, err := os.ReadFile(file)
		return err == nil && yaml.Unmarshal(content, &spec) == nil &&
			spec.Kind == sharedVendor+"/"+cdiClasses[pools.SharedHCA]
	}))
}

// removeSpecs removes the specs that match a pattern and for which ours returns true, except those of kept
// pools.
func (c *CDI) removeSpecs(pattern string, kept []pools.Pool, ours func(name string) bool) error {
	problems := []error{c.Disk.RemoveAbandoned(c.Dirs[len(c.Dirs)-1])}
	needed := map[string]bool{}
	for _, pool := range kept {
		needed[c.specPath(cdiPoolOf(pool))] = true
	}
	for _, dir := range c.Dirs {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		problems = append(problems, err)
		for _, name := range files {
			if !needed[name] && ours(name) {
				problems = append(problems, c.Disk.Remove(name))
			}
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("clean up CDI: %w", err)
	}
	return nil
}

// specPath returns the path of a pool's spec.
func (c *CDI) specPath(p cdiPool) string { return filepath.Join(c.Dirs[len(c.Dirs)-1], p.file) }

// newSpec returns the spec of a pool, empty for none. It omits devices without nodes, which a spec cannot
// contain; in the stock plugin such a device disables the whole pool (issue 546 there).
func (p cdiPool) newSpec(devices []pools.Device, grants map[string]*Grant) ([]byte, error) {
	spec := &specs.Spec{Version: cdiVersion, Kind: p.vendor + "/" + p.class}
	written := map[string]bool{}
	for _, d := range devices {
		g := grants[d.ID]
		if g == nil || len(g.Nodes) == 0 || written[g.Name] {
			continue
		}
		written[g.Name] = true
		edits := container.Edits{Nodes: g.Nodes}
		spec.Devices = append(spec.Devices, specs.Device{Name: g.Name, ContainerEdits: edits.CDI()})
	}
	if len(spec.Devices) == 0 {
		return nil, nil
	}
	// Marshalled through JSON, like the library of the stock plugin, because the library's own marshaller orders
	// the keys differently.
	content, err := yaml.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write CDI spec %s: %w", p.file, err)
	}
	return append([]byte("---\n"), content...), nil
}

// writeSpec writes the spec of a pool unless the file has the content, or removes the file if content is
// empty.
func (c *CDI) writeSpec(p cdiPool, content []byte) error {
	name := c.specPath(p)
	if len(content) == 0 {
		return c.Disk.Remove(name)
	}
	if err := c.Disk.Update(name, content, 0o600, 0o755); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	return nil
}

// nameDevices returns the CDI devices for the device nodes of devices.
func (c *CDI) nameDevices(p cdiPool, order []string, grants map[string]*Grant) container.Named {
	named := container.Named{Field: c.Field}
	if !c.Field {
		named.Annotation = p.annotation
	}
	for _, id := range order {
		name := parser.QualifiedName(p.vendor, p.class, grants[id].Name)
		if len(grants[id].Nodes) > 0 && !slices.Contains(named.Devices, name) {
			named.Devices = append(named.Devices, name)
		}
	}
	return named
}

// cdiSpec is the expected CDI spec of one pool. The zero value is an unknown spec.
type cdiSpec struct {
	mu      sync.Mutex
	devices []pools.Device    // of the content
	grants  map[string]*Grant // by device ID; nil if unknown
	content []byte            // of the file; empty for no file
}

// Write updates the spec, if device nodes are passed by CDI: with the current grants of all devices of the
// pool if given is nil or the pool has other devices, else with the last grants updated by given. It rewrites
// the file if it differs, after changes by another instance, by the stock plugin or by an operator.
//
// Write calls newest under the lock, so that the last of several concurrent calls uses the newest pool.
func (s *cdiSpec) Write(h Host, newest func() pools.Pool, given map[string]*Grant) error {
	if h.CDI == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := newest()
	changed := given == nil || s.grants == nil || !slices.Equal(pool.Devices, s.devices)
	if changed {
		s.devices, s.grants = pool.Devices, h.grantAll(pool)
	}
	for id, g := range given {
		if before := s.grants[id]; before == nil || !slices.Equal(before.Nodes, g.Nodes) {
			s.grants[id], changed = g, true
		}
	}
	names := cdiPoolOf(pool)
	if changed {
		var err error
		s.content, err = names.newSpec(pool.Devices, s.grants)
		if err != nil {
			s.grants = nil
			return err
		}
	}
	return h.CDI.writeSpec(names, s.content)
}

// grantAll returns the grants of all devices of a pool. It includes faulty devices, because their containers
// may restart.
func (h Host) grantAll(pool pools.Pool) map[string]*Grant {
	all, functions := map[string]*Grant{}, map[string]*Grant{}
	for _, d := range pool.Devices {
		if functions[d.File()] == nil { // replicas share a function
			functions[d.File()] = h.Grant(d, pool.Resource)
		}
		all[d.ID] = functions[d.File()]
	}
	return all
}
