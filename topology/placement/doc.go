// Package placement chooses a container's GPUs and VFs together.
package placement
