// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// StartServer starts the API server, and waits until it is ready.
func (p *Plane) StartServer() {
	p.t.Helper()
	_, port, err := net.SplitHostPort(p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	key := p.path("accounts.key")
	p.component("kube-apiserver", "--etcd-servers="+p.etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--advertise-address=10.255.255.1", // nobody goes there
		"--endpoint-reconciler-type=none", "--cert-dir="+p.path("certificates"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
		"--token-auth-file="+p.path("tokens.csv"), "--enable-admission-plugins=NodeRestriction",
		// No kubelet reports nodes as ready.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--runtime-config="+strings.Join(p.options.APIs, ","))
	p.waitReady()
}

// StartScheduler starts the scheduler, with high rate limits.
func (p *Plane) StartScheduler() {
	p.t.Helper()
	p.component("kube-scheduler", "--kubeconfig="+p.path("scheduler"), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=2000", "--kube-api-burst=4000")
}

// StartSchedulerWith starts a scheduler with a name and with profiles, a YAML list as in a
// KubeSchedulerConfiguration. Its other settings are those of StartScheduler.
func (p *Plane) StartSchedulerWith(name, profiles string) {
	p.t.Helper()
	p.StartSchedulerFrom(name, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
`+profiles, p.path("scheduler"))
}

// StartSchedulerFrom starts a scheduler with a name and a KubeSchedulerConfiguration without client
// connection, which comes from the kubeconfig. The rate limits of StartScheduler apply to any configuration.
func (p *Plane) StartSchedulerFrom(name, configuration, kubeconfig string, flags ...string) {
	p.t.Helper()
	file := p.path(fmt.Sprintf("%s-%d.yaml", name, p.starts))
	configuration += fmt.Sprintf("clientConnection: {kubeconfig: %q, qps: 2000, burst: 4000}\n", kubeconfig)
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.component(name, slices.Concat([]string{"--config=" + file, "--secure-port=0"}, flags)...)
}

// StartControllers starts the controllers for claims, pods and their owners.
func (p *Plane) StartControllers(more ...string) {
	p.t.Helper()
	p.component("kube-controller-manager", "--kubeconfig="+p.path("manager"), "--leader-elect=false",
		"--secure-port=0", "--use-service-account-credentials", "--kube-api-qps=2000", "--kube-api-burst=4000",
		"--service-account-private-key-file="+p.path("accounts.key"),
		"--controllers=resourceclaim-controller,device-taint-eviction-controller,"+
			"garbage-collector-controller,serviceaccount-controller,namespace-controller,"+
			strings.Join(append(more, "pod-garbage-collector-controller"), ",")+
			",validatingadmissionpolicy-status-controller")
}

// Stop stops a program, "kube-apiserver", as an upgrade does.
func (p *Plane) Stop(name string) {
	p.t.Helper()
	running, runs := p.running[name]
	if !runs {
		p.t.Fatalf("stop %s: it does not run", name)
	}
	running.Stop()
	delete(p.running, name)
}

// Log returns the log of a running program.
func (p *Plane) Log(name string) string {
	p.t.Helper()
	content, err := os.ReadFile(p.running[name].log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(content)
}

// CPU returns the CPU time of a program.
func (p *Plane) CPU(name string) time.Duration {
	p.t.Helper()
	spent, err := cpuTime(p.running[name].pid)
	if err != nil {
		p.t.Fatal(err)
	}
	return spent
}

func (p *Plane) component(name string, args ...string) {
	p.t.Helper()
	program := filepath.Join(p.options.Programs, p.options.Version, name)
	p.start(name, program, slices.Concat(args, p.features())...)
}

// start starts a program that ends with this process.
func (p *Plane) start(name, path string, args ...string) {
	p.t.Helper()
	p.starts++
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := p.path(fmt.Sprintf("%02d-%s.log", p.starts, name))
	service, err := host.StartService(cmd, log)
	if err != nil {
		p.t.Fatal(err)
	}
	p.running[name] = &program{Service: service, number: p.starts, pid: cmd.Process.Pid, log: log}
}

// waitReady waits until the API server has finished its start.
func (p *Plane) waitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	client := p.Client(p.Admin()).Discovery().RESTClient()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := client.Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-p.running["kube-apiserver"].Done():
			p.t.Fatal(p.running["kube-apiserver"].Ended())
		case <-p.running["etcd"].Done():
			p.t.Fatal(p.running["etcd"].Ended())
		case <-ctx.Done():
			p.t.Fatalf("the API server is not ready after %s: %v", startTime, err)
		}
	}
}
