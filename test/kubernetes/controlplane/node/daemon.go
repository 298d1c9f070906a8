// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Daemon is a tandem-dra process.
type Daemon struct {
	*host.Service
	Log     string // file
	process *os.Process
	probe   *exec.Cmd // a kubelet's readiness probe
}

// Options configure a daemon.
type Options struct {
	Program    string // tandem-dra
	Node       string // the node's name
	Kubeconfig string
	PodUID     string // UID of its pod; for a rolling update
	Log        string // file of its log
	Flags      []string
}

// Kubelet returns the kubelet's folder.
func (m *Machine) Kubelet() string { return m.Path("kubelet") }

// Folders returns the flags of all daemons for the machine's paths.
func (m *Machine) Folders() []string {
	return []string{
		"--sysfs-root=" + m.Path("sys"), "--dev-root=" + m.Path("dev"), "--kubelet-dir=" + m.Kubelet(),
		"--run-dir=" + m.Path("run"),
	}
}

// StartPlugins starts tandem-gpu and tandem-rdma on the machine, from a folder with both. They end with this
// process.
func (m *Machine) StartPlugins(bin string) (started []*host.Service, err error) {
	for program, flags := range map[string][]string{
		"tandem-gpu": {}, "tandem-rdma": {
			"--config-file=" + m.Path("config.json"), "--resource-prefix=tandem.dev",
			"--devinfo-dir=" + m.Path("devinfo"),
		},
	} {
		cmd := exec.Command(filepath.Join(bin, program), append(m.Folders(), flags...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		service, err := host.StartService(cmd, m.Path(program+".log"))
		if err != nil {
			return started, err
		}
		started = append(started, service)
	}
	return started, nil
}

// CDI returns the folder with the CDI specs.
func (m *Machine) CDI() string { return m.Path("cdi") }

// Start starts a daemon on the machine. It ends with this process.
func (m *Machine) Start(o Options) (*Daemon, error) {
	flags := append(m.Folders(), "--devinfo-dir="+m.Path("devinfo"), "--cdi-root="+m.CDI(),
		"--config-file="+m.Path("config.json"), "--resource-prefix=tandem.dev", "--log-format=json",
		"--node-name="+o.Node, "--kubeconfig="+o.Kubeconfig)
	probes := "--health-probe-bind-address=unix:" + o.Log + ".sock"
	driver, variables := m.Driver()
	cmd := exec.Command(o.Program, slices.Concat(flags, []string{probes}, driver, o.Flags)...)
	cmd.Env = append(os.Environ(), variables...)
	if o.PodUID != "" {
		cmd.Env = append(cmd.Env, "POD_UID="+o.PodUID)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	service, err := host.StartService(cmd, o.Log)
	if err != nil {
		return nil, err
	}
	return &Daemon{
		Service: service, Log: o.Log, process: cmd.Process,
		probe: exec.Command(o.Program, "--probe=readyz", probes),
	}, nil
}

// Ready runs the readiness probe of the daemon's pod. A rolling update waits for it before it ends the old
// pod.
func (d *Daemon) Ready(ctx context.Context) error {
	_, err := host.Run(ctx, exec.Command(d.probe.Path, d.probe.Args[1:]...))
	return err
}

// Kill ends the daemon without warning (SIGKILL).
func (d *Daemon) Kill() error {
	select {
	case <-d.Done():
		return fmt.Errorf("kill the daemon: it had %w", d.Ended())
	default:
	}
	if err := d.process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", filepath.Base(d.Log), err)
	}
	<-d.Done()
	return nil
}

// Prepares returns the durations of preparations from the daemons' logs, by the name of the claim.
func (m *Machine) Prepares() (map[string]time.Duration, error) {
	logs, err := filepath.Glob(m.Path("*.log"))
	if err != nil {
		return nil, err
	}
	took := map[string]time.Duration{}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(content) {
			var said struct {
				Message string        `json:"msg"`
				Claim   string        `json:"claim"`
				Took    time.Duration `json:"took"`
			}
			if json.Unmarshal(line, &said) == nil && said.Message == "prepared" {
				took[said.Claim] = said.Took
			}
		}
	}
	return took, nil
}

// Text returns the end of the daemon's log.
func (d *Daemon) Text() string {
	content, err := os.ReadFile(d.Log)
	if err != nil {
		return err.Error()
	}
	return host.Tail(string(content), 4000)
}
