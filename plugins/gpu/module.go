// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"io/fs"
	"strings"
)

// Loading reports whether a kernel module is being loaded, so that it may not yet have bound all of its
// devices (show_initstate in kernel/module/sysfs.c). It returns false for absent and built-in modules.
func Loading(sys fs.FS, module string) bool {
	state, err := fs.ReadFile(sys, "module/"+module+"/initstate")
	return err == nil && strings.TrimSpace(string(state)) == "coming"
}
