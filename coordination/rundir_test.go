// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunDirOfOthers: a folder with files of others, such as /run or /tmp, is refused, and other users are
// not shut out of it.
func TestRunDirOfOthers(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o755, fs.ModeSticky | 0o777} {
		dir := shortDir(t)
		file := os.WriteFile(filepath.Join(dir, "utmp"), nil, 0o600)
		if err := errors.Join(file, os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{RunDir: dir, SysRoot: sysRoot(t)}); err == nil ||
			!strings.Contains(err.Error(), "files of others") {
			t.Errorf("mode %v: error %v", mode, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode()&^fs.ModeDir != mode {
			t.Errorf("mode %v is %v now, %v", mode, info.Mode(), err)
		}
	}
}
