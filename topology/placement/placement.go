// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Device is a device to place: a GPU, a partition of a GPU, or a VF.
type Device struct {
	ID      string           // the kubelet's device ID
	Address topology.Address // its PCI function; for a partition, the function of its card
	// works, but worse than it should: chosen last among equally distant devices. A PF whose link is below its
	// maximum, and a card with fewer lanes than its maximum, are degraded in any case
	Degraded bool `json:",omitempty"`
}

// Half is the request for one resource: GPUs, partitions of one type, or the VFs of one pool.
type Half struct {
	Count int      // total number of requested devices, including Held
	Held  []Device // already assigned to the container, or must-include
	Free  []Device // may be chosen
}

// Devices are GPUs and VFs.
type Devices struct {
	GPUs, VFs []Device
}

// Request is the complete input. The order of lists has no meaning. For a device in several lists, Held takes
// precedence over Free, Free over Spare, and Spare over Taken.
type Request struct {
	GPUs, VFs []Half          // one for each requested resource; none if no resource of the kind is requested
	Links     []topology.Link // direct links between GPUs
	Spare     Devices         // free devices that may not be chosen: on other NUMA nodes, of other resources
	Taken     Devices         // held by other containers
}

// Pair is a GPU and the VF that serves it.
type Pair struct {
	GPU, VF  Device
	Distance topology.Distance
}

// Choice is the result of Choose.
type Choice struct {
	GPUs    []Device // ascending by address, then by ID
	VFs     []Device // the i-th VF pairs with the i-th GPU; see Choose
	Pairs   []Pair   // as many as the size of the larger half; none if a half is empty
	Left    int      // same-switch pairs that the remaining free devices can form, including spare devices
	Optimal bool     // proven: no better choice exists; false only beyond the package's bounds
	Reason  string   // one sentence with numbers, for logs and people
}

// compareDevices orders by address, then by ID: partitions of a card share its address.
func compareDevices(a, b Device) int {
	if c := a.Address.Compare(b.Address); c != 0 {
		return c
	}
	return compareNatural(a.ID, b.ID)
}

// compareNatural compares strings with embedded numbers by value, xcp_2 before xcp_10. It returns 0 only for
// identical strings.
func compareNatural(a, b string) int {
	whole := strings.Compare(a, b)
	if whole == 0 {
		return 0
	}
	same := 0 // common prefix up to a number: replicas of a device differ only in the number
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for same > 0 && digits(a[same-1:]) > 0 {
		same--
	}
	a, b = a[same:], b[same:]
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// digits returns the number of leading decimal digits.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
