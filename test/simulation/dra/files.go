// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/topology"
)

// cdiKind is the kind of CDI devices of claims.
const cdiKind = pool.Driver + "/claim"

// specPath returns the CDI spec of a claim.
func (n *Node) specPath(c *claim) string {
	return filepath.Join(n.cdiDir(), fmt.Sprintf("%s-claim_%s.json", pool.Driver, c.uid))
}

// checkFiles: the CDI spec of a claim has the CDI devices of the answer, and each names the devices of its
// containers.
func (s *Simulation) checkFiles(c *claim) {
	named, _, err := s.read(c)
	if err != nil {
		s.wrong(wrongFiles, "%s: %v", c, err)
		return
	}
	known := s.known()
	c.seen = nil
	for _, name := range c.answered {
		device, own := strings.CutPrefix(name, cdiKind+"=")
		if !own {
			continue
		}
		want, got := devicesOf(known, name), named[device]
		if !slices.Equal(want, got) {
			s.wrong(wrongFiles, "%s: CDI device %s has %v, want %v", c, device, got, want)
		}
		c.seen = append(c.seen, got...)
	}
}

// lacks reports whether the machine lacks a device.
func (s *Simulation) lacks(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		function, err := topology.ParseAddress(id)
		return err == nil && s.hardware.Lacks([]topology.Address{function})
	})
}

// expectNoSpecs: claims of pods with a device that the machine lacks have no CDI specs until the device is
// back.
func (s *Simulation) expectNoSpecs() {
	known := s.known()
	for _, p := range s.pods {
		var ids []string
		for _, c := range p.claims {
			its, _ := claims.FindClaim(known, c.uid)
			for _, d := range its.Devices {
				ids = append(ids, slices.Concat(d.GPUs, d.VFs)...)
			}
		}
		for _, c := range p.claims {
			c.restored = c.restored && !s.lacks(ids)
		}
	}
}

// checkGone: the CDI specs of claims name no device that the machine lacks.
func (s *Simulation) checkGone() {
	for _, p := range s.pods {
		for _, c := range p.claims {
			named, _, err := s.read(c)
			for device, ids := range named {
				if err == nil && c.holds() && s.lacks(ids) {
					s.wrong(goneNamed, "%s: CDI device %s has %v", c, device, ids)
				}
			}
		}
	}
}

// checkShares: each container of a pod has what its requests allocate, by the CDI specs that the kubelet
// passes to the runtime for the container. A VF may be another one than the allocated one. The CDI devices of
// a container agree on the values of variables: the runtime keeps one value.
func (s *Simulation) checkShares(p *pod) {
	named, environments := map[string][]string{}, map[string][]string{} // by CDI device
	isWhole := true
	for _, c := range p.claims {
		its, variables, err := s.read(c)
		if !c.holds() || !c.prepared || !c.restored {
			isWhole = false
		} else if err != nil {
			s.wrong(wrongFiles, "%s: %v", c, err)
			isWhole = false
		}
		maps.Copy(named, its)
		maps.Copy(environments, variables)
	}
	for i, part := range p.parts() {
		got, gpus, values, vfs := map[string]bool{}, map[string]bool{}, map[string]string{}, 0
		for _, share := range part {
			for _, name := range share.cdi {
				device := strings.TrimPrefix(name, cdiKind+"=")
				for _, id := range named[device] {
					got[id] = true
				}
				for _, text := range environments[device] {
					variable, value, _ := strings.Cut(text, "=")
					if other, set := values[variable]; set && other != value {
						s.wrong(twoValues, "container %d of %s has %s=%s and %s", i, p, variable, other, value)
					}
					values[variable] = value
				}
			}
			for _, id := range share.gpus {
				gpus[id] = true
			}
			vfs += share.vfs
		}
		if !isWhole {
			continue
		}
		for id := range gpus {
			if !got[id] {
				s.wrong(wrongShare, "container %d of %s lacks %s", i, p, id)
			}
		}
		if len(got) != len(gpus)+vfs {
			s.wrong(wrongShare, "container %d of %s has %v, want %v and %d VFs", i, p,
				slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(gpus)), vfs)
		}
	}
}

// devicesOf returns the GPUs and VFs of the containers with a CDI device, sorted.
func devicesOf(known []claims.Claim, cdi string) []string {
	group := ""
	for _, c := range known {
		for _, d := range c.Devices {
			if slices.Contains(d.CDI, cdi) {
				group = d.Group
			}
		}
	}
	devices := map[string]bool{}
	for _, c := range known {
		for _, d := range c.Devices {
			for _, id := range slices.Concat(d.GPUs, d.VFs) {
				if d.Group == group {
					devices[id] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(devices))
}

// read returns the GPUs and VFs that the CDI spec of a claim names, and the variables, by CDI device.
func (s *Simulation) read(c *claim) (named, variables map[string][]string, err error) {
	content, err := os.ReadFile(s.specPath(c))
	if err != nil {
		return nil, nil, fmt.Errorf("read the CDI spec: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return nil, nil, fmt.Errorf("decode the CDI spec: %w", err)
	}
	named, variables = map[string][]string{}, map[string][]string{}
	for _, device := range spec.Devices {
		var ids []string
		for _, variable := range device.ContainerEdits.Env {
			name, value, _ := strings.Cut(variable, "=")
			if name == hardware.GPUVariable || name == "PCIDEVICE_NVIDIA_COM_VF" {
				ids = append(ids, strings.Split(value, ",")...)
			}
		}
		slices.Sort(ids)
		named[device.Name], variables[device.Name] = ids, device.ContainerEdits.Env
		for _, mount := range device.ContainerEdits.Mounts {
			if _, missing := os.Stat(mount.HostPath); missing != nil {
				err = fmt.Errorf("mount of CDI device %s: %w", device.Name, missing)
			}
		}
	}
	return named, variables, err
}
