// SPDX-License-Identifier: Apache-2.0

package fix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// faultyFolders fail one of the steps that change files, and all after it if the process is killed there.
type faultyFolders struct {
	step  int   // at which it happens, from 1
	fault error // that the step returns; nil where the process is killed
	taken int
}

var errKilled = errors.New("killed")

func (f *faultyFolders) open(path string) (settings.Folder, error) {
	folder, err := settings.OpenFolder(path)
	return &faultyFolder{folder, f}, err
}

// happens reports whether a step fails. A killed process takes no further one.
func (f *faultyFolders) happens() error {
	f.taken++
	switch {
	case f.fault == nil && f.taken >= f.step:
		return errKilled
	case f.taken == f.step:
		return f.fault
	}
	return nil
}

type faultyFolder struct {
	settings.Folder
	faults *faultyFolders
}

// Create leaves half a file behind where it fails, as a full disk does.
func (f *faultyFolder) Create(name string, content []byte) error {
	if err := f.faults.happens(); err != nil {
		return errors.Join(err, f.Folder.Create(name, content[:len(content)/2]))
	}
	return f.Folder.Create(name, content)
}

func (f *faultyFolder) Rename(from, to string) error {
	if err := f.faults.happens(); err != nil {
		return err
	}
	return f.Folder.Rename(from, to)
}

func (f *faultyFolder) Remove(name string) error {
	if err := f.faults.happens(); err != nil {
		return err
	}
	return f.Folder.Remove(name)
}

// steppedNode is a node with a kubelet that has a folder of drop-ins and a state of its policy.
func steppedNode(t *testing.T, policy string) managers.Kubelet {
	t.Helper()
	n := managers.Kubelet{KubeletDir: t.TempDir(), ConfigDir: t.TempDir(), Sys: fstest.MapFS{
		"devices/system/node/node0/cpulist": {Data: []byte("0-3\n")},
	}}
	for file, content := range map[string]string{
		settings.Default(n.KubeletDir):                   NewDropIn,
		filepath.Join(n.KubeletDir, "cpu_manager_state"): fmt.Sprintf(`{"policyName":%q}`, policy),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// startable says why the kubelet would not start now.
func startable(n managers.Kubelet) error {
	f, err := n.Read(settings.Process{}, nil)
	if err != nil {
		return err
	}
	findings := managers.Refusals(f)
	stale, _ := f.StaleStates(n.KubeletDir)
	for _, s := range stale {
		findings = append(findings, s.Finding)
	}
	for _, finding := range findings {
		return errors.New(finding.Summary)
	}
	return nil
}

// TestInterrupted: wherever a change is killed or fails, the kubelet starts with the files as they are then,
// and the next run does the rest.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	change := func(x fixer) error { return x.fix(Change{Apply: true, StaticCPUs: true}) }
	for _, direction := range []struct {
		name, policy string
		seed         func(managers.Kubelet) error
		run          func(fixer) error
		atEnd        []string // files in the folder of drop-ins
	}{
		{"fix", "none", func(managers.Kubelet) error { return nil }, change, []string{DropIn, earlierDropIn}},
		{"roll back", managers.Static, func(n managers.Kubelet) error {
			f, err := n.Read(settings.Process{}, nil)
			return errors.Join(err, os.WriteFile(ownFile(f.At), dropIn(f, true), 0o600))
		}, func(x fixer) error { return x.rollBack(false) }, nil},
		{"roll back the last change", managers.Static, func(n managers.Kubelet) error {
			f, err := n.Read(settings.Process{}, nil)
			return errors.Join(err, os.WriteFile(ownFile(f.At), dropIn(f, true), 0o600),
				os.WriteFile(filepath.Join(f.At.Dir, earlierDropIn), dropIn(f, false), 0o600))
		}, func(x fixer) error { return x.rollBack(true) }, []string{DropIn}},
	} {
		for name, fault := range map[string]error{
			"killed": nil, "disk full": syscall.ENOSPC, "read-only": syscall.EROFS,
		} {
			t.Run(direction.name+", "+name, func(t *testing.T) {
				t.Parallel()
				for step := 1; ; step++ {
					n := steppedNode(t, direction.policy)
					if err := direction.seed(n); err != nil {
						t.Fatal(err)
					}
					if err := startable(n); err != nil {
						t.Fatalf("before: %v", err)
					}
					faults := &faultyFolders{step: step, fault: fault}
					err := direction.run(fixer{out: io.Discard, node: n, open: faults.open})
					if faults.taken < step {
						if err != nil || step < 3 {
							t.Errorf("%d steps: %v", step-1, err)
						}
						return
					}
					if err == nil {
						t.Errorf("step %d: no error", step)
					}
					if err := startable(n); err != nil {
						t.Errorf("interrupted at step %d: the kubelet does not start: %v", step, err)
					}
					finishes(t, n, step, direction.run, direction.atEnd)
				}
			})
		}
	}
}

// finishes runs a change again, and looks at its end.
func finishes(t *testing.T, n managers.Kubelet, step int, run func(fixer) error, atEnd []string) {
	t.Helper()
	var told strings.Builder
	if err := run(fixer{out: &told, node: n, open: settings.OpenFolder}); err != nil {
		t.Errorf("after step %d the next run fails: %v", step, err)
	}
	if err := startable(n); err != nil {
		t.Errorf("after step %d the next run leaves: %v\n%s", step, err, told.String())
	}
	entries, err := os.ReadDir(n.ConfigDir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if err != nil || !slices.Equal(names, atEnd) {
		t.Errorf("after step %d there are %v, %v, want %v", step, names, err, atEnd)
	}
}

// TestFullDiskLeavesTheState: what cannot be written is found before anything is removed.
func TestFullDiskLeavesTheState(t *testing.T) {
	t.Parallel()
	n := steppedNode(t, "none")
	const create = 2 // behind the look for one that is left over
	faults := &faultyFolders{step: create, fault: syscall.ENOSPC}
	err := fixer{out: io.Discard, node: n, open: faults.open}.fix(Change{Apply: true, StaticCPUs: true})
	if _, missing := os.Stat(filepath.Join(n.KubeletDir, "cpu_manager_state")); missing != nil ||
		!errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v; the state: %v", err, missing)
	}
}
