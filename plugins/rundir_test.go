// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/test/programs"
)

// TestRunDirOfOthers: --run-dir is a folder with files of others, such as /run or /tmp.
func TestRunDirOfOthers(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	for daemon, mode := range map[string]fs.FileMode{
		"tandem-rdma": 0o755, "tandem-gpu": fs.ModeSticky | 0o777,
	} {
		dir := inMemory(t, "others")
		file := os.WriteFile(filepath.Join(dir, "utmp"), nil, 0o644)
		if err := errors.Join(file, os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), filepath.Join(programs.Build(t, daemon), daemon),
			append(s.flags, "--run-dir="+dir)...)
		if daemon == "tandem-rdma" {
			command.Args = append(command.Args, "--config-file="+s.path("config.json"))
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		select { // it serves the kubelet, or refuses the folder
		case <-s.kubelet.Plugins:
			_ = command.Process.Kill()
			<-ended
		case <-ended:
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ fs.ModeDir; got != mode {
			t.Errorf("%s: other users are shut out of a folder with their files: its mode was %v and is %v",
				daemon, mode, got)
		}
	}
}
