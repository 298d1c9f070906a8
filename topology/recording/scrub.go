// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// scrubber replaces identifiers of a machine. Equal identifiers get equal replacements, so that references
// between files stay valid.
type scrubber struct {
	names      map[string]string // replacements of interface names that contain an address
	identities map[string]int    // replacements of hardware identifiers
}

func newScrubber() *scrubber {
	return &scrubber{names: map[string]string{}, identities: map[string]int{}}
}

// addressed matches names of interfaces and RDMA devices that contain a MAC address or GUID: enx001122334455,
// ibx…, rocex… (systemd.net-naming-scheme(7), rdma_rename in rdma-core).
// A suffix, as of a VF, does not hide an address.
var addressed = regexp.MustCompile(`(en|ib|wl|ww|roce|iw|opa|rdma)x([0-9a-f]{16}|[0-9a-f]{12})`)

// name replaces addressed names in a path, a link target or other text: enx001122334455 by enx000000000001.
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

// mayBeAddressed reports whether a text may match addressed. It is much faster than the regular expression.
func mayBeAddressed(text string) bool {
	for _, kind := range []string{"enx", "ibx", "wlx", "wwx", "rocex", "iwx", "opax", "rdmax"} {
		if strings.Contains(text, kind) {
			return true
		}
	}
	return false
}

// identity matches the lines of a KFD properties file that identify a GPU or a hive of linked GPUs (node_show
// in drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
var identity = regexp.MustCompile(`(?m)^(unique_id|hive_id) ([0-9]+)$`)

// content replaces identifiers in the content of a file.
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

// keyword replaces a keyword of Vital Product Data; "" stays.
func (s *scrubber) keyword(value string) string {
	if value == "" {
		return ""
	}
	return strconv.Itoa(s.number(value))
}

// number returns the replacement of an identifier, from 1 up in the order of first use. Zero means none and
// stays zero.
func (s *scrubber) number(id string) int {
	if strings.Trim(id, "0") == "" {
		return 0
	}
	if s.identities[id] == 0 {
		s.identities[id] = len(s.identities) + 1
	}
	return s.identities[id]
}
