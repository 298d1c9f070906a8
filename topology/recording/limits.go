// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"io"
	"strings"
)

// Limits of a machine, so that a file of unknown origin costs neither the memory nor the time of whoever
// reads it. A server with 16 NICs of 256 VFs each has some 145,000 nodes, in a file of 9 MiB.
const (
	mostBytes    = 32 << 20
	mostNodes    = 250_000
	mostComments = 10_000 // lines
	longestPath  = 4096   // bytes (PATH_MAX in include/uapi/linux/limits.h)
	deepestPath  = 64     // elements; sysfs has some twenty
)

// read reads all of a machine file.
func read(r io.Reader) (string, error) {
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(r, mostBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read machine file: %w", err)
	case n > mostBytes:
		return "", fmt.Errorf("read machine file: it is larger than %d MiB", mostBytes>>20)
	}
	return text.String(), nil
}

// checkLength refuses a path that no sysfs has.
func checkLength(path string) error {
	switch {
	case len(path) > longestPath:
		return fmt.Errorf("the path %.40q… is longer than %d bytes", path, longestPath)
	case strings.Count(path, "/") >= deepestPath:
		return fmt.Errorf("the path %.40q… has more than %d elements", path, deepestPath)
	}
	return nil
}
