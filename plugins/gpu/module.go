// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"io/fs"
	"strings"
)

// Loading reports whether a kernel module is being loaded: it has bound some of its devices, and not yet
// others (show_initstate in kernel/module/sysfs.c). A module that is not there, or built in, is not.
func Loading(sys fs.FS, module string) bool {
	state, err := fs.ReadFile(sys, "module/"+module+"/initstate")
	return err == nil && strings.TrimSpace(string(state)) == "coming"
}
