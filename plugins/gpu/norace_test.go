// SPDX-License-Identifier: Apache-2.0

//go:build !race

package gpu_test

const slower = 1
