// SPDX-License-Identifier: Apache-2.0

// Package pools says which devices of a machine belong to which resource: a pure function of the
// configuration, a sysfs root and the PCI tree.
//
//	config.json ──ReadConfig──▶ Config ──Finder──▶ []Pool ──▶ []Device
//	                               sysfs, tree ──▲
//
// A [Selector] has the conditions, a function the values that they are compared with. What a container's
// namespaces hide of a device is taken from what was seen of it before, see [Hidden].
// [Finder.Explain] tells which devices the selectors reject, and why.
package pools
