// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// Nobody but root and our own user is served, even if the folder and the socket are open to all.
func TestForeignUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	base := shortDir(t)
	dir := filepath.Join(base, "run")
	start(t, dir)
	await(t, dir, func(*api.StatusResponse) bool { return true })
	for _, name := range []string{base, dir, SocketPath(dir)} {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if !greeted(t, SocketPath(dir), 0) {
		t.Error("our own user is not served")
	}
	if greeted(t, SocketPath(dir), 4242) {
		t.Error("another user is served")
	}
}

// greeted connects as a user and reports whether the server says anything; a server of HTTP/2 speaks first.
func greeted(t *testing.T, socket string, uid int) bool {
	t.Helper()
	type result struct {
		n   int
		err error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid),
			uintptr(uid)); errno != 0 {
			results <- result{err: errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			results <- result{err: err}
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		n, _ := conn.Read(make([]byte, 1))
		results <- result{n: n}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.n > 0
}
