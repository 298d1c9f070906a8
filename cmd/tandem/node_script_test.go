// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/golden"
)

const oci = "oci-mi300x-derived"

// TestNodeScripts: what tandem prints on nodes of all kinds. A step "node MACHINE/VFS" lays out a healthy
// one, ROOT in the text, and the next steps change it.
func TestNodeScripts(t *testing.T) {
	t.Parallel()
	const all = "green No problem, red ERROR, yellow UNKNOWN, yellow WARNING"
	for file, coloured := range map[string]string{
		"doctor-daemons": all, "doctor-drop-in": "red ERROR, yellow WARNING",
		"doctor-hardware": "red ERROR, yellow UNKNOWN, yellow WARNING", "doctor-kubelet": all,
		"doctor-machines": all, "plan-merge": "", "topo-verbose": "",
		"qualify": "green passed, yellow incomplete",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			checkNodeScript(t, file, coloured)
		})
	}
}

// TestRights: what a user without root's rights is told.
func TestRights(t *testing.T) {
	t.Parallel()
	checkNodeScript(t, "rights", "yellow UNKNOWN")
}

// checkNodeScript runs a script; coloured are the words in colours.
func checkNodeScript(t *testing.T, file, coloured string) {
	t.Helper()
	var s *sick
	var shown colours
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			program, args := args[0], args[1:]
			if program == "nobody" {
				args = args[1:]
			}
			if args[0] == "doctor" || args[0] == "qualify" && !slices.Contains(args, "--check") {
				args = slices.Concat(args[:1], s.command("--color=always")[1:], args[1:])
			}
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ROOT", s.root)
			}
			if program == "nobody" {
				code, stdout, stderr = runAsNobody(t, args...)
			} else {
				code, stdout, stderr = run(args...)
			}
			return code, s.anywhere(shown.strip(stdout)), s.anywhere(stderr)
		},
		Step: func(name, text string) {
			if name == "node" {
				machine, perPF := machineOf(text)
				s = layOut(t, sysfs(t, machine, perPF))
			} else {
				s.step(name, strings.ReplaceAll(text, "ROOT", s.root))
			}
		},
		File: func(name string) string {
			s.own(name)
			return s.path(name)
		},
	}.Check(t, "testdata/scripts/"+file+".txt")
	shown.check(t, coloured)
}

// step changes the node.
func (s *sick) step(name, text string) {
	s.t.Helper()
	words := strings.Fields(text)
	switch name {
	case "edit": // FILE OLD -> NEW
		file, change, _ := strings.Cut(text, " ")
		old, replacement, _ := strings.Cut(change, " ->")
		s.edit(file, old, strings.TrimPrefix(replacement, " "))
	case "append": // FILE LINE
		file, line, _ := strings.Cut(text, " ")
		s.write(file, s.read(file)+line+"\n")
	case "remove": // FILE...
		s.remove(words...)
	case "link": // TARGET NAME
		s.symlink(words[0], words[1])
	case "listen": // SOCKET
		s.listen(text)
	case "process": // PID ARGUMENT...
		s.process(words[0], words[1:]...)
	case "namespace": // PROCESS MOUNT-NAMESPACE
		s.namespace(words[0], words[1])
	case "pods": // NAMESPACE/NAME=REASON...: of the failure, none for a running pod
		s.runPods(words)
	case "unconfigured": // a kubelet with its defaults
		s.write("kubelet/config.yaml", kubeletKind)
		s.cpuState("none", "")
	case "plain-kubelet": // a kubelet with its defaults and a folder of drop-ins
		s.plainKubelet()
	case "without-vfs": // PF
		s.withoutVFs(text)
	case "acs": // PORT CONTROL: in the configuration space, of which a user reads no control
		s.write(words[0]+"/config", configSpace(s.t, words[1:]))
	case "acs-above": // FUNCTION CONTROL: of all ports above it
		for _, port := range s.bridges(words[0]) {
			s.write(port+"/config", configSpace(s.t, words[1:]))
		}
	case "eight-nodes":
		s.eightNodes()
	case "halve": // the NUMA nodes with devices
		s.halve()
	case "one-node-of-cpus":
		s.oneNode()
	case "open": // the run folder and the sockets, for every user
		s.open()
	case "close": // FILE...: for every user but root
		s.close(words...)
	case "mode": // MODE RUN-FOLDER
		s.enter(coordination.Mode(words[0]), words[1])
	case "plugins": // RUN-FOLDER
		twoPairs().run(s.t, s.path(text))
	case "answers": // a coordinator and a kubelet do, but for one of them
		s.answer(text)
	case "driver": // NOTE; NOTE...: a DRA driver runs and has notes
		s.drive(strings.Split(text, "; "))
	case "nccl": // FILE: NCCL's topology of the machine
		s.write(text, succeed(s.t, "topo", "-o", "nccl", "--sysfs-root", s.path("sys")))
	case "offers": // VFs: with-nodes, without-nodes, nothing
		s.offer(text)
	default:
		s.t.Fatalf("no step is called %s", name)
	}
}

func (s *sick) read(name string) string {
	s.t.Helper()
	content, err := os.ReadFile(s.path(name))
	s.check(err)
	return string(content)
}

// edit replaces a part of a file.
func (s *sick) edit(name, old, replacement string) {
	s.t.Helper()
	content := s.read(name)
	if !strings.Contains(content, old) {
		s.t.Fatalf("%s does not have %q", name, old)
	}
	s.write(name, strings.ReplaceAll(content, old, replacement))
}

// runPods are the pods that the kubelet knows.
func (s *sick) runPods(names []string) {
	var pods []corev1.Pod
	for _, one := range names {
		name, reason, _ := strings.Cut(one, "=")
		namespace, name, _ := strings.Cut(name, "/")
		p := failed(namespace, name, reason)
		if reason == "" {
			p.Status.Phase = corev1.PodRunning
		}
		pods = append(pods, p)
	}
	s.pods.Store(&pods)
}

// enter puts the node into a mode: a daemon holds the lock of a run folder.
func (s *sick) enter(m coordination.Mode, runDir string) {
	s.t.Helper()
	s.check(os.MkdirAll(s.path(runDir), 0o700))
	lock, err := os.Create(s.path(runDir + "/mode-" + string(m) + ".lock"))
	s.check(err)
	s.t.Cleanup(func() { lock.Close() })
	s.check(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH))
}

// anywhere is a text without the folder that the node is laid out in.
func (s *sick) anywhere(text string) string { return strings.ReplaceAll(text, s.root, "ROOT") }

// asCommand makes the test's program run tandem itself.
const asCommand = "TANDEM_TEST_AS_COMMAND"

// limited returns tandem as a process with limits of the shell's ulimit.
func limited(t *testing.T, limits string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	ready(t, err)
	cmd := exec.Command("sh", append([]string{"-c", limits + ` && exec "$0" "$@"`, self}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	m.Run()
	for _, dir := range laidOut.folders {
		_ = os.RemoveAll(dir)
	}
}

// runAsNobody runs tandem without root's rights. The texts have UID for the user's number.
func runAsNobody(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	const nobody = 65534
	user := os.Geteuid()
	var out, problems bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if user == 0 {
		user = nobody
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	number := strings.NewReplacer(fmt.Sprint("ser ", user), "ser UID")
	return cmd.ProcessState.ExitCode(), number.Replace(out.String()), number.Replace(problems.String())
}

// open gives every user the rights to the run folder and the sockets.
func (s *sick) open() {
	s.t.Helper()
	s.check(os.Chmod(s.root, 0o755))
	s.check(os.Chmod(s.path("run"), 0o755))
	for _, pattern := range []string{"run/*.sock", "kubelet/*/*.sock"} {
		sockets, err := filepath.Glob(s.path(pattern))
		s.check(err)
		for _, socket := range sockets {
			s.check(os.Chmod(socket, 0o777))
		}
	}
}

// close takes everybody's rights to files and folders.
func (s *sick) close(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.check(os.Chmod(s.path(name), 0))
		s.t.Cleanup(func() { _ = os.Chmod(s.path(name), 0o700) }) // to be removed
	}
}
