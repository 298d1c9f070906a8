// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

// The process that serves the coordination is stopped, and answers nobody any more; it holds the lock on.
// Each of the two daemons then makes the best choice that it can make alone, however late the machine lets it
// be: VFs are of as many PFs as can be, and the half that is given second is the best there is for the first.
// Nothing is excused here.
func TestMixedLoadAlone(t *testing.T) {
	for _, setup := range []rig.Setup{
		{Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true},
		{Machine: "amd-mi300x-smc-thor2", VFsPerPF: 2},
	} {
		t.Run(setup.String(), func(t *testing.T) {
			run, err := os.MkdirTemp(scratch, "")
			if err != nil {
				t.Fatal(err)
			}
			setup.Coordinated, setup.RunDir = true, run
			server := startServer(t, run)
			l := &alone{t: t, load: &load{t: t, Rig: startRig(t, setup), random: rand.New(rand.NewPCG(*seed, 0))}}
			stopProcess(t, server.Process.Pid)
			position := l.Pair.Log.Len()
			for i := range *admissions / 10 { // each takes half a second
				l.step(i)
			}
			lines, _ := l.Pair.Log.Since(position)
			if together := slices.ContainsFunc(lines, func(line pair.Line) bool {
				return line.Message == "preferred" && line.Source == "coordinator"
			}); together || l.judged == 0 {
				t.Errorf("%d containers judged, the coordinator answered: %t", l.judged, together)
			}
			t.Logf("%d containers with GPUs and VFs, %d in pairs as good as there were", l.judged, l.best)
		})
	}
}

// roleServer has this test's program serve the coordination in a folder.
const roleServer = "TANDEM_TEST_SERVE"

// startServer starts a process that serves the coordination, without devices of its own. It ends with the
// test.
func startServer(t *testing.T, run string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(self)
	server.Env = append(os.Environ(), roleServer+"="+run)
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for ctx := deadline(t); ; {
		if _, err := coordination.Status(ctx, run); err == nil {
			return server
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// stopProcess stops a child of this process, and returns when it does nothing any more.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("stop process %d: %v, %v", pid, status, err)
	}
}

// serve is that process.
func serve(run string) error {
	empty := filepath.Join(run, "sys")
	if err := os.MkdirAll(filepath.Join(empty, "bus/pci/devices"), 0o700); err != nil {
		return err
	}
	n, err := coordination.New(coordination.Config{
		RunDir: run, SysRoot: empty, KubeletDir: run, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return n.Run(context.Background())
}

// alone is a load that judges what daemons choose without a coordinator.
type alone struct {
	*load
	t            *testing.T
	judged, best int
}

// step lets some pods go and one come.
func (l *alone) step(i int) {
	for len(l.pods) > 0 && l.fullness() > l.random.Float64() {
		l.depart(l.random.IntN(len(l.pods)))
	}
	pod := l.randomPod(fmt.Sprint("pod-", i))
	placements, err := l.Rig.Admit(deadline(l.t), pod)
	var rejection *node.Rejection
	switch {
	case errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError":
		if err := l.Remove(pod); err != nil {
			l.t.Fatal(err)
		}
		return
	case err != nil:
		l.t.Fatal(err)
	}
	l.pods = append(l.pods, pod)
	for _, p := range placements {
		l.judge(pod.Name, p)
	}
}

// judge looks at one container.
func (l *alone) judge(pod string, p rig.Placement) {
	if !p.IsPaired() {
		return
	}
	l.judged++
	if p.Pairs == p.Best {
		l.best++
	}
	asked, followed, reached := p.Asked[0], p.ForGPUs, p.Pairs
	if asked == rig.VF {
		followed, reached = p.ForVFs, p.Matched
	}
	if reached != followed {
		l.t.Errorf("pod %s, container %s, %s first, NUMA nodes %v: %v, want %v\nGPUs %v\nVFs %v\n%s",
			pod, p.Container, asked, p.NUMA, reached, followed, p.GPUs, p.VFs, pair.Text(p.Log))
	}
	if pfs := l.functions(p.VFs); asked == rig.VF && pfs < p.PFs {
		l.t.Errorf("pod %s, container %s: VFs %v of %d PFs, want %d\n%s",
			pod, p.Container, p.VFs, pfs, p.PFs, pair.Text(p.Log))
	}
}

// functions counts the PFs that VFs are of.
func (l *alone) functions(vfs []rig.Device) int {
	pfs := map[topology.Address]bool{}
	for _, vf := range vfs {
		if d, ok := l.Tree.Device(vf.Address); ok {
			pfs[d.PF] = true
		}
	}
	return len(pfs)
}
