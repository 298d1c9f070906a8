// SPDX-License-Identifier: Apache-2.0

// Package gpus is what the daemons that offer GPUs have in common: the flags that say whose GPUs and how they
// are found, and the wait for a driver.
package gpus
