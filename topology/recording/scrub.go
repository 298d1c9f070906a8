// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// scrubber replaces what would tell one machine of a kind from another. The same thing is replaced by the
// same thing, so that what belongs together still does.
type scrubber struct {
	names      map[string]string // interface names made of an address, by kind of name
	identities map[string]int    // numbers that identify hardware
}

func newScrubber() *scrubber {
	return &scrubber{names: map[string]string{}, identities: map[string]int{}}
}

// addressed matches interface and RDMA device names that systemd and rdma-core make of a MAC address or GUID:
// enx001122334455, ibx…, rocex… (systemd.net-naming-scheme(7), rdma_rename in rdma-core).
var addressed = regexp.MustCompile(`\b(en|ib|wl|ww|roce|iw|opa|rdma)x([0-9a-f]{12}|[0-9a-f]{16})\b`)

// name replaces addresses in a path, a link target or any other text: enx001122334455 becomes
// enx000000000001.
func (s *scrubber) name(text string) string {
	if !mayBeAddressed(text) {
		return text
	}
	return addressed.ReplaceAllStringFunc(text, func(found string) string {
		if s.names[found] == "" {
			kind, digits, _ := strings.Cut(found, "x")
			s.names[found] = fmt.Sprintf("%sx%0*x", kind, len(digits), len(s.names)+1)
		}
		return s.names[found]
	})
}

// mayBeAddressed saves most texts from the regular expression.
func mayBeAddressed(text string) bool {
	for _, kind := range []string{"enx", "ibx", "wlx", "wwx", "rocex", "iwx", "opax", "rdmax"} {
		if strings.Contains(text, kind) {
			return true
		}
	}
	return false
}

// identity matches a line of a KFD properties file that identifies a GPU, or a group of linked ones
// (node_show in drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
var identity = regexp.MustCompile(`(?m)^(unique_id|hive_id) ([0-9]+)$`)

// content replaces what identifies the machine in the content of a file.
func (s *scrubber) content(name, text string) string {
	switch path.Base(name) {
	case "phys_switch_id": // made of a MAC address by most drivers
		if id := strings.TrimSpace(text); id != "" {
			return fmt.Sprintf("%02x\n", s.number(id))
		}
	case "properties":
		return identity.ReplaceAllStringFunc(text, func(line string) string {
			key, value, _ := strings.Cut(line, " ")
			if key == "unique_id" {
				return "unique_id 0"
			}
			return fmt.Sprintf("hive_id %d", s.number(value))
		})
	}
	return s.name(text)
}

// number counts identities: the first is 1. Zero stands for none and stays zero.
func (s *scrubber) number(id string) int {
	if strings.Trim(id, "0") == "" {
		return 0
	}
	if s.identities[id] == 0 {
		s.identities[id] = len(s.identities) + 1
	}
	return s.identities[id]
}
