// SPDX-License-Identifier: Apache-2.0

//go:build !race

package kubelet_test

const raceDetector = false
