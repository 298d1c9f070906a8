// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
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

// OnNode returns a text with the node's paths in place of those with the prefix of the process.
func (p Process) OnNode(text string) string {
	if p.Root == "" {
		return text
	}
	return strings.ReplaceAll(text, p.Root+"/", "/")
}

// FindProcess finds the kubelet in a /proc, "" for none. A process can choose its name and command line:
// trusted is only a process of root in the namespaces of the node's first process, and only if no second
// process matches. Untrusted processes with the name kubelet are an error if no trusted process exists.
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
		if err := checkTrust(procRoot, dir); err == nil {
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

// checkTrust returns an error if a process is not the node's kubelet. A reader without permission for
// namespaces has no permissions that the process could abuse.
func checkTrust(procRoot, dir string) error {
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
		PID: filepath.Base(dir), Age: processAge(procRoot, dir),
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

// processAge returns the time since the start of a process; 0 if unknown (proc_pid_stat(5), proc_uptime(5)).
func processAge(procRoot, dir string) time.Duration {
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

// flagPath returns the path in a flag, with the prefix of the process; "" for no path.
func (p Process) flagPath(flag string) string {
	path := p.Flags.Last(flag)
	if path == "" {
		return ""
	}
	return filepath.Join(p.Root, "/", path) // systemd starts it in /
}

// RootDir returns the root folder of the process (--root-dir).
func (p Process) RootDir() string {
	return cmp.Or(p.flagPath("root-dir"), filepath.Join(p.Root, kubelet.DefaultDir))
}

// Files returns the files that the process reads; paths in the argument take precedence.
func (p Process) Files(given kubelet.ConfigFiles, kubeletDir string) kubelet.ConfigFiles {
	files := kubelet.ConfigFiles{
		Config: cmp.Or(given.Config, p.flagPath("config")), Dir: cmp.Or(given.Dir, p.flagPath("config-dir")),
		Name: given.Name, Root: p.Root,
	}
	if files.Config == "" && p.PID == "" {
		files.Config, files.Guessed = filepath.Join(kubeletDir, kubelet.ConfigFile), true
	}
	return files
}

// slack is the precision of comparisons between the age of a process and the time of a file.
const slack = 100 * time.Millisecond

// ChangedSince returns the files and folders that changed after the start of the process, which may run with
// older settings. The status change time also counts, so that a copy with an old modification time is found.
func (p Process) ChangedSince(now time.Time, files ...string) (changed []string) {
	if p.Age <= 0 || now.IsZero() {
		return nil
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		age := now.Sub(changeTime(info)) // negative after the clock was set back
		if age >= 0 && age+slack < p.Age {
			changed = append(changed, file)
		}
	}
	return changed
}
