// SPDX-License-Identifier: Apache-2.0

// Package gpus has the common parts of the daemons that offer GPUs: the flags that select and find GPUs, and
// the wait for a driver.
package gpus
