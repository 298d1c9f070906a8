// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limit is how long a process may take to end, or to log a text.
const Limit = 30 * time.Second

// Process is a started program. Its output is its log.
type Process struct {
	*exec.Cmd
	ended chan struct{} // closed at its end

	mu  sync.Mutex
	log bytes.Buffer
}

// Command returns the command of a program that Build builds.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(filepath.Join(Build(t, name), name), args...)
}

// Start starts a command. After the test, or if the test ends early, the process gets SIGTERM and has to end;
// a failed test shows the log. A test is skipped if the kernel does not give the process its namespaces.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: command, ended: make(chan struct{})}
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL // also after a panic or a timeout of the test
	p.Stdout, p.Stderr = p, p
	p.WaitDelay = time.Second // a child that stays behind may have the output
	err := p.Cmd.Start()
	for _, refused := range []error{syscall.EPERM, syscall.EINVAL, syscall.ENOSPC} {
		if p.SysProcAttr.Cloneflags != 0 && errors.Is(err, refused) {
			t.Skipf("this kernel gives no namespace: %v", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM) // unless it has ended
		p.Exit(t)
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.name(), p.Log())
		}
	})
	return p
}

// Write adds to the log.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

// Log returns the log so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// LastLine returns the last line of the log.
func (p *Process) LastLine() string {
	log := strings.TrimSpace(p.Log())
	return log[strings.LastIndexByte(log, '\n')+1:]
}

// Until waits for a condition. The process must not end before.
func (p *Process) Until(t testing.TB, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Limit); ; <-tick.C {
		running := p.Running() // what the process does last is seen after its end
		if condition() {
			return
		}
		if !running {
			t.Fatalf("%s has ended: %v", p.name(), p.ProcessState)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: nothing happened for %s", p.name(), Limit)
		}
	}
}

// Get requests a path at the address of metrics and probes that a daemon has logged.
func (p *Process) Get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	served := regexp.MustCompile(`msg="serving metrics and probes" address=(\S+)\n`)
	p.Until(t, func() bool { return served.MatchString(p.Log()) })
	answer, err := http.Get("http://" + served.FindStringSubmatch(p.Log())[1] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

// Status returns a number of the kernel's status of the process (Documentation/filesystems/proc.rst), in KiB
// for the sizes.
func (p *Process) Status(t testing.TB, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(string(status), "\n"+name+":")
	var number int
	if _, err := fmt.Sscan(value, &number); err != nil {
		t.Fatalf("read %s of %s: %v", name, p.name(), err)
	}
	return number
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Exit waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Exit(t testing.TB) (code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Limit):
		_ = p.Process.Kill()
		t.Errorf("%s does not end within %s", p.name(), Limit)
		<-p.ended
	}
	return p.ProcessState.ExitCode()
}

// Stop ends the process by a signal, after which it has to succeed.
func (p *Process) Stop(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if code := p.Exit(t); code != 0 {
		t.Errorf("%s, after %v: %v\n%s", p.name(), signal, p.ProcessState, p.Log())
	}
}

// Kill ends the process without warning.
func (p *Process) Kill() {
	_ = p.Process.Kill() // unless it has ended
	<-p.ended
}

func (p *Process) name() string { return filepath.Base(p.Path) }
