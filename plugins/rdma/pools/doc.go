// SPDX-License-Identifier: Apache-2.0

// Package pools assigns the devices of a machine to resources, as a pure function of the configuration, a
// sysfs root and the PCI tree.
//
//	config.json ──ReadConfig──▶ Config ──Finder──▶ []Pool ──▶ []Device
//	                               sysfs, tree ──▲
//
// A [Selector] has the conditions, a function the values to compare. Properties that a container's namespaces
// hide come from earlier readings, see [Hidden]. [Finder.Explain] lists the devices that the selectors
// reject, with reasons.
package pools
