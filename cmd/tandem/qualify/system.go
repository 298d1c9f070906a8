// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unicode"
)

// numbers matches the numbers of a version. What follows in the version of a kernel can name an organisation.
var numbers = regexp.MustCompile(`\d+\.\d+(\.\d+)*`)

// longest is the greatest number of bytes of a name.
const longest = 64

// ReadSystem reads the names and versions of this node: the firmware's in sysfs, the kernel's in procfs.
// Unreadable ones are empty.
func ReadSystem(sysfsRoot, procRoot string) System {
	version := func(elements ...string) string { return numbers.FindString(line(elements...)) }
	name := func(file string) string {
		text := line(sysfsRoot, "class/dmi/id", file)
		return strings.TrimSpace(text[:min(len(text), longest)])
	}
	return System{
		Vendor:       name("sys_vendor"),
		Product:      name("product_name"),
		Architecture: runtime.GOARCH,
		Kernel:       version(procRoot, "sys/kernel/osrelease"),
		NVIDIA:       version(procRoot, "driver/nvidia/version"), // "… Kernel Module for x86_64  580.65.06  …"
		AMD:          version(sysfsRoot, "module/amdgpu/version"),
	}
}

// line returns the first line of a file without unusual characters; "" for an unreadable file.
func line(elements ...string) string {
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strings.Map(func(r rune) rune {
		if r >= unicode.MaxASCII || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, first)
}
