// SPDX-License-Identifier: Apache-2.0

// Package capability reads two files of a PCI function in sysfs, config and vpd: the function's own facts
// about complexes. The package also writes these facts as minimal files, for recorded machines.
package capability
