// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// daemonChecks are the checks of the health of devices, and of the kubelet's use of them.
var daemonChecks = []check{
	{
		id: "no-answer", severity: Unknown, in: ofNodes,
		summary: "A daemon or the kubelet does not answer: the health of devices, and the kubelet's use of them, " +
			"are unknown.",
		why: "A daemon or a kubelet that hangs delays every start of a pod on this node.",
		fix: []string{
			"look at the logs of Tandem's pods on this node and of the kubelet, and at /livez of the pods",
		},
		find: func(n *Node, f *Finding) {
			if n.silent != nil {
				f.addSeen("%v", n.silent)
			}
		},
	},
	{ // the kubelet uses another plugin
		id: "kubelet-devices", severity: Error, in: ofNodes,
		summary: "The kubelet does not use the devices that Tandem offers.",
		why: "Another plugin that registers the same resource later replaces Tandem's. When that plugin ends, " +
			"a kubelet before 1.37 has no devices, and a later kubelet keeps the list of the plugin " +
			"that is gone.",
		fix: []string{
			"remove the other plugin from this node: docs/deployers.md has the steps for its chart, " +
				"YAML or operator",
			"Tandem registers again once it is gone; where it does not within a minute, delete Tandem's pod of that " +
				"resource on this node",
		},
		find: func(n *Node, f *Finding) { f.Evidence = n.lost },
	},
	{
		id: "device-health", severity: Warning, in: ofNodes,
		summary: "Devices are failed or degraded.",
		why: "The kubelet gives a failed device to no container; of equally near devices a degraded one is " +
			"chosen last. Running containers keep their devices.",
		fix: []string{
			"look at the cable, the transceiver and the port's counters (ethtool -S, perfquery, dmesg for AER): " +
				"docs/health.md has each reason",
			"a device is good again a minute after its last cause; docs/health.md has the time of each cause",
		},
		find: func(n *Node, f *Finding) {
			for _, text := range n.status.ListUnsound() {
				f.addSeen("%s", text)
			}
		},
	},
}

// folderChecks are the checks of the mode, of the run folder, and of what the report lacks.
var folderChecks = []check{
	{ // the lock of a mode prevents both, except with run folders that were invisible at the start
		id: "modes", severity: Error, in: ofNodes,
		summary: "Device plugins and the DRA driver both allocate this node's devices.",
		why:     "A device can be allocated to two pods.",
		fix: []string{
			"remove one of them from this node (docs/dra.md has the steps); set the same --run-dir for all daemons",
		},
		find: func(n *Node, f *Finding) {
			modes, dirs := map[coordination.Mode]bool{}, append(coordination.RunDirs(n.KubeletDir), n.RunDir)
			slices.Sort(dirs)
			for _, dir := range slices.Compact(dirs) {
				for _, m := range coordination.RunningModes(dir) {
					modes[m.Mode] = true
					f.addSeen("%s", m.Seen)
				}
			}
			f.Evidence = evidenceIf(len(modes) > 1, f.Evidence...)
		},
	},
	{
		id: "run-folder", severity: Error, in: ofNodes,
		summary: "The two daemons cannot use their run folder.",
		why:     "Each daemon then chooses independently, so that same-switch pairs occur only by chance.",
		find: func(n *Node, f *Finding) {
			if err := n.checkRunFolder(); err != nil {
				f.addSeen("%v", err)
			}
			f.Fix = []string{"rm -r " + n.RunDir + ": the daemons create it again; or set another runDir"}
		},
	},
	{
		id: "run-folders", severity: Error, in: ofPlugins,
		summary: "The two daemons use different run folders.",
		why:     "Each daemon chooses independently, so that same-switch pairs occur only by chance.",
		find: func(n *Node, f *Finding) {
			for _, other := range coordination.RunDirs(n.KubeletDir) {
				if n.Status() != nil && other != n.RunDir && dialSocket(coordination.SocketPath(other)) == nil {
					f.addSeen("one serves in %s and another in %s", n.RunDir, other)
				}
			}
			f.Fix = []string{"set the same --run-dir for both, or omit the flag to use the default " +
				coordination.RunDir(n.KubeletDir)}
		},
	},
	{
		id: "recording", severity: Unknown, in: ofRecording,
		summary: "A recording tells nothing of the kubelet, the plugins, containers and device nodes.",
		why:     "The report lacks these checks.",
		fix:     []string{"run tandem doctor on the node, as root"},
		find: func(_ *Node, f *Finding) {
			f.addSeen("the hardware is judged, and requests of containers for policy %s on the empty node, "+
				"without CPUs", restricted)
		},
	},
	{
		id: "no-right", severity: Unknown, in: ofNodes, noun: "file or folder",
		summary: fmt.Sprintf("User %d is not permitted to read %%s.", os.Geteuid()),
		why:     "The report lacks this data.",
		fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
		find: func(n *Node, f *Finding) { f.Evidence = slices.Sorted(slices.Values(n.closed)) },
	},
}

// checkRunFolder returns an error if the daemons cannot use their run folder: only root, or the caller as the
// daemons' user, may have access to the folder, which the daemons create.
func (n *Node) checkRunFolder() error {
	info, err := os.Lstat(n.RunDir)
	switch {
	case errors.Is(err, fs.ErrNotExist), n.noteDenied(n.RunDir, err):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder: %s", n.RunDir, info.Mode())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if owner := int(stat.Uid); ok && owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("%s is owned by user %d", n.RunDir, owner)
	}
	socket := coordination.SocketPath(n.RunDir)
	if err := coordination.CheckSocketPlace(socket); err != nil && !n.noteDenied(socket, err) {
		return err
	}
	return nil
}

// errNotRunning says that nobody serves in the run folder.
var errNotRunning = errors.New("no tandem-rdma is running")

// askDaemons asks the running daemons in the run folder, at its first call.
func (n *Node) askDaemons(ctx context.Context) {
	if n.asked {
		return
	}
	n.asked, n.noAnswer = true, errNotRunning
	if _, err := os.Lstat(coordination.SocketPath(n.RunDir)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	answer, err := coordinator.AskStatus(ctx, n.RunDir)
	n.noAnswer = err
	if err == nil {
		n.status = coordinator.NewStatus(answer)
	}
}

// Status returns the status of the running daemons, nil without an answer.
func (n *Node) Status() *coordinator.Status {
	if !n.asked || n.noAnswer != nil {
		return nil
	}
	return &n.status
}

// AskMode asks the running daemons what they say of themselves: the mode of the node, without a daemon by the
// lock files in the run folder, and the notes.
func (n *Node) AskMode(ctx context.Context) {
	n.askDaemons(ctx)
	if s := n.Status(); s != nil {
		n.Mode, n.Notes = coordination.Mode(s.Mode), s.Notes
	} else if in := coordination.RunningModes(n.RunDir); len(in) > 0 {
		n.Mode = in[0].Mode
	}
}

// readDaemons compares the devices of the running daemons with the kubelet's.
func (n *Node) readDaemons(ctx context.Context) {
	n.askDaemons(ctx)
	switch {
	case n.Status() == nil:
		if dialSocket(coordination.SocketPath(n.RunDir)) == nil {
			n.silent = n.noAnswer
		}
	case n.Mode != coordination.DRA:
		n.lost, n.silent = n.lostTwice(ctx)
	}
}

// runningVFs returns the VFs that the running tandem-rdma offers, each once.
func (n *Node) runningVFs() ([]model.Resource, error) {
	if n.noAnswer != nil {
		return nil, n.noAnswer
	}
	var vfs []model.Resource
	err, known := errNotRunning, map[string]bool{}
	for _, resource := range n.status.Resources {
		if resource.Kind != string(device.VF) || !resource.Connected {
			continue
		}
		err = nil
		pool := model.Resource{Name: resource.Name, Kind: model.VF}
		for _, d := range resource.Devices {
			address, invalid := topology.ParseAddress(d.Address)
			if _, there := n.Tree.Device(address); invalid != nil || !there || known[d.ID] {
				continue
			}
			known[d.ID] = true
			vf := model.Device{NUMA: d.NUMA}
			vf.ID, vf.Address = d.ID, address
			pool.Devices = append(pool.Devices, vf)
		}
		if len(pool.Devices) > 0 {
			vfs = append(vfs, pool)
		}
	}
	return vfs, err
}

// askTimeout limits the questions to the running daemons and to the kubelet.
const askTimeout = 5 * time.Second

// lostTwice compares the devices of the running daemons with the kubelet's, and repeats the comparison after
// a difference, because a list may be in transit.
func (n *Node) lostTwice(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if dialSocket(kubelet.PodResourcesSocket(n.KubeletDir)) != nil {
		return nil, nil // a check of pluginChecks reports the error
	}
	pods, err := kubelet.NewPodResources(n.KubeletDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	lost, err := lostDevicesOf(ctx, n.status, pods)
	if len(lost) == 0 {
		return nil, err
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	answer, err := coordinator.AskStatus(ctx, n.RunDir)
	if err != nil {
		return nil, err
	}
	return lostDevicesOf(ctx, coordinator.NewStatus(answer), pods)
}

// lostDevicesOf returns the difference between the healthy devices of the daemons and of the kubelet, by
// resource.
func lostDevicesOf(
	ctx context.Context, status coordinator.Status, pods *kubelet.PodResources,
) (lost []string, err error) {
	has, err := pods.Allocatable(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range status.Resources {
		offered, kept := 0, 0
		for _, d := range r.Devices {
			if !d.IsHealthy() {
				continue
			}
			offered++
			if slices.Contains(has[r.Name], d.ID) {
				kept++
			}
		}
		if others := len(has[r.Name]) - kept; r.Connected && (kept < offered || others > 0) {
			lost = append(lost, fmt.Sprintf("%s: the kubelet has %d of the %d healthy devices that are offered, "+
				"and %d others", r.Name, kept, offered, others))
		}
	}
	return lost, nil
}
