// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
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

// Questions of other clients that wait, as many as their connections have room for, keep no plugin's Allocate
// from the coordinator, in the process that serves or in another one.
func TestWaitingClientsTakeNoRoom(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := coordinatorOf(server)
	own, waits, goOn := c.Kubelet, make(chan struct{}, 1), make(chan struct{})
	c.Kubelet = lister{own, func() (kubelet.View, error) {
		select {
		case waits <- struct{}{}:
		default:
		}
		<-goOn
		return kubelet.View{}, kubelet.ErrNotRead
	}}
	var clients sync.WaitGroup
	for range 2 {
		conn, err := dialRunDir(server.config.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range maxCalls {
			clients.Go(func() {
				_, _ = api.NewCoordinationClient(conn).Prefer(t.Context(), &api.PreferRequest{
					Resource: gpus, Available: offered[gpus], Size: 1,
				})
			})
		}
	}
	<-waits
	ctx, cancel := context.WithTimeout(t.Context(), 10*system.QuestionLimit)
	defer cancel()
	for name, member := range members {
		if _, err := member.report(ctx, member.StartAllocate(t.Context(), offered[name][:1])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(goOn)
	clients.Wait()
	c.Kubelet = own
}

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
