//go:build !race

package gpu_test

const slower = 1
