// SPDX-License-Identifier: Apache-2.0

// Package settings finds a node's running kubelet, its flags and the files of its configuration.
//
// A process can choose its name and command line. [FindProcess] therefore trusts only a process of root in
// the namespaces of the node's first process, and only if no second process matches.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Process is the running kubelet of a node; the zero value means none.
type Process struct {
	PID   string
	Flags kubelet.Flags
	Root  string        // prefix of the process's paths, "" for the same paths
	Age   time.Duration // time since the start; 0 if unknown
}

// OnNode returns a text with the node's paths in place of paths with the prefix of a process.
func OnNode(root, text string) string {
	if root == "" {
		return text
	}
	return strings.ReplaceAll(text, root+"/", "/")
}

// FindProcess finds the kubelet in a /proc, "" for none. Untrusted processes with the name kubelet are an
// error if no trusted process exists.
func FindProcess(procRoot string) (Process, error) {
	if procRoot == "" {
		return Process{}, nil
	}
	names, _ := filepath.Glob(filepath.Join(procRoot, "[0-9]*", "comm")) // the pattern is well formed
	var found, refused []string
	for _, name := range names {
		dir := filepath.Dir(name)
		if comm, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(comm)) != "kubelet" {
			continue
		}
		if err := trust(procRoot, dir); err == nil {
			found = append(found, dir)
		} else if !errors.Is(err, fs.ErrNotExist) { // ErrNotExist: the process has ended
			refused = append(refused, fmt.Sprintf("process %s has the name kubelet, but %v", filepath.Base(dir), err))
		}
	}
	switch {
	case len(found) > 1:
		return Process{}, fmt.Errorf("find the kubelet: %d processes match: %s",
			len(found), strings.Join(found, ", "))
	case len(found) == 1:
		return readProcess(procRoot, found[0])
	case len(refused) > 0:
		return Process{}, fmt.Errorf("find the kubelet: %s", strings.Join(refused, "; "))
	default:
		return Process{}, nil
	}
}

// trust returns an error if a process is not the node's kubelet. A reader without permission for namespaces
// has no permissions that the process could abuse.
func trust(procRoot, dir string) error {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return err
	}
	if !isRoot(string(status)) {
		return errors.New("it is not root's")
	}
	for _, namespace := range []string{"mnt", "pid"} {
		own, err := os.Readlink(filepath.Join(dir, "ns", namespace))
		first, firstErr := os.Readlink(filepath.Join(procRoot, "1", "ns", namespace))
		err = errors.Join(err, firstErr)
		switch {
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		case err != nil:
			return fmt.Errorf("its namespaces cannot be read: %w", err)
		case own != first:
			return fmt.Errorf("it runs in a container: its %s namespace is not the node's", namespace)
		}
	}
	return nil
}

// isRoot reads /proc/PID/status, in which the kernel escapes line feeds of the process's name. The owner of
// /proc/PID is not sufficient: root also owns the folders of undumpable processes.
func isRoot(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Join(strings.Fields(ids), " ") == "0 0 0 0" // real, effective, saved, file system
		}
	}
	return false
}

func readProcess(procRoot, dir string) (Process, error) {
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, fmt.Errorf("read the kubelet's command line: %w", err)
	}
	p := Process{
		PID: filepath.Base(dir), Age: age(procRoot, dir),
		Flags: kubelet.ParseFlags(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")),
	}
	own, ownErr := os.Readlink(filepath.Join(procRoot, "self", "ns", "mnt"))
	its, itsErr := os.Readlink(filepath.Join(dir, "ns", "mnt"))
	if ownErr == nil && itsErr == nil && own != its {
		p.Root = filepath.Join(dir, "root")
	}
	return p, nil
}

// ticks a second are in /proc/PID/stat on every architecture of Go (USER_HZ).
const ticks = 100

// age returns the time since the start of a process; 0 if unknown (proc_pid_stat(5), proc_uptime(5)).
func age(procRoot, dir string) time.Duration {
	uptime, uptimeErr := os.ReadFile(filepath.Join(procRoot, "uptime"))
	stat, statErr := os.ReadFile(filepath.Join(dir, "stat"))
	_, behindName, _ := strings.Cut(string(stat[strings.LastIndex(string(stat), ")")+1:]), " ")
	up, fields := strings.Fields(string(uptime)), strings.Fields(behindName)
	const start = 19 // the 22nd field; the first two are the PID and the name
	if uptimeErr != nil || statErr != nil || len(up) == 0 || len(fields) <= start {
		return 0
	}
	now, nowErr := strconv.ParseFloat(up[0], 64)
	started, startedErr := strconv.ParseFloat(fields[start], 64)
	if nowErr != nil || startedErr != nil {
		return 0
	}
	return time.Duration((now - started/ticks) * float64(time.Second))
}
