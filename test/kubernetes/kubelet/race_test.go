//go:build race

package kubelet_test

const raceDetector = true
