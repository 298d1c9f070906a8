// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// scratch is a folder for everything these tests make. Its name is short, for the sockets in it. It is
// removed when no goroutine is left: the kubelet writes its checkpoint in the background.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	node.Silence()
	var err error
	if scratch, err = os.MkdirTemp("/tmp", "tandem-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The kubelet keeps the connection of a plugin that it has replaced by a newer one, before 1.37, and of one
	// that it finds while it is being stopped, which ends its process. Its plugin watcher and its device manager
	// try for ten seconds to reach a dead socket.
	leaks := []goleak.Option{
		goleak.IgnoreTopFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"),
		goleak.IgnoreTopFunction("google.golang.org/grpc.(*addrConn).resetTransportAndUnlock"),
		goleak.IgnoreAnyFunction("k8s.io/kubernetes/pkg/kubelet/pluginmanager/operationexecutor.dial"),
		goleak.IgnoreAnyFunction("k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1.dial"),
	}
	goleak.VerifyTestMain(m, append(leaks, goleak.Cleanup(func(code int) {
		os.RemoveAll(scratch)
		os.Exit(code)
	}))...)
}

// daemons builds the two daemons from the module above, once, and returns their folder. With the race
// detector in this test they have it too: a race makes them end with an exit code that is not 0, which fails
// the test that stops them.
func daemons(t *testing.T) string {
	t.Helper()
	dir, err := build()
	must(t, err)
	return dir
}

var build = sync.OnceValues(func() (dir string, err error) {
	fmt.Fprintln(os.Stderr, "building tandem-gpu and tandem-rdma")
	dir = filepath.Join(scratch, "bin")
	command := exec.Command("go", "build", fmt.Sprintf("-race=%t", raceDetector), "-o", dir+"/",
		"./cmd/tandem-gpu", "./cmd/tandem-rdma")
	command.Dir = "../../.."
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build daemons: %w\n%s", err, output)
	}
	return dir, nil
})
