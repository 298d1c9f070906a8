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
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// daemons are Tandem's daemons in the run folder, beside their status.
type daemons struct {
	answer  bool
	unsound []string // failed and degraded devices, by reason
	lost    []string // resources with devices that the kubelet lacks or has from another plugin
	silent  []string // questions without an answer
}

func (n *Node) readDaemons() (d daemons) {
	if dialSocket(coordination.SocketPath(n.RunDir)) != nil {
		return d
	}
	err := n.askDaemons(context.Background()).err
	d.answer, d.unsound = err == nil, n.running.status.ListUnsound()
	if d.answer && n.Mode != coordination.DRA {
		d.lost, err = n.lostTwice(n.running.status)
	}
	if err != nil {
		d.silent = []string{err.Error()}
	}
	return d
}

// whyUnusable returns the reason why the daemons cannot use their run folder: only root, or the caller as the
// daemons' user, may have access to the folder.
func (n *Node) whyUnusable(runDir string) string {
	info, err := os.Lstat(runDir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the daemons create the folder
		return ""
	case n.noteDenied(runDir, err):
		return ""
	case err != nil:
		return err.Error()
	case !info.IsDir():
		return fmt.Sprintf("%s is no folder: %s", runDir, info.Mode())
	case ownerOf(info) != os.Geteuid() && ownerOf(info) != 0:
		return fmt.Sprintf("%s is owned by user %d", runDir, ownerOf(info))
	}
	socket := coordination.SocketPath(runDir)
	if err := coordination.CheckSocketPlace(socket); err != nil && !n.noteDenied(socket, err) {
		return err.Error()
	}
	return ""
}

func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// askTimeout limits the questions to the running daemons and to the kubelet.
const askTimeout = 5 * time.Second

// lostTwice compares the devices of the running daemons with the kubelet's, and repeats the comparison after
// a difference, because a list may be in transit.
func (n *Node) lostTwice(status coordinator.Status) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if dialSocket(kubelet.PodResourcesSocket(n.KubeletDir)) != nil {
		return nil, nil // [kubeletSockets] reports the error
	}
	pods, err := kubelet.NewPodResources(n.KubeletDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	lost, err := lostDevicesOf(ctx, status, pods)
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

// silentDaemons finds daemons, and a kubelet, that do not answer.
func silentDaemons(n *Node) []Finding {
	return []Finding{{
		ID: "no-answer", Severity: Unknown,
		Summary: "A daemon or the kubelet does not answer: the health of devices, and the kubelet's use of them, " +
			"are unknown.",
		Evidence: n.daemons.silent,
		Why:      "A daemon or a kubelet that hangs delays every start of a pod on this node.",
		Fix: []string{
			"look at the logs of Tandem's pods on this node and of the kubelet, and at /livez of the pods",
		},
	}}
}

// unsoundDevices finds devices that work badly or not at all.
func unsoundDevices(n *Node) []Finding {
	return []Finding{{
		ID: "device-health", Severity: Warning,
		Summary:  "Devices are failed or degraded.",
		Evidence: n.daemons.unsound,
		Why: "The kubelet gives a failed device to no container; of equally near devices a degraded one is " +
			"chosen last. Running containers keep their devices.",
		Fix: []string{
			"look at the cable, the transceiver and the port's counters (ethtool -S, perfquery, dmesg for AER): " +
				"docs/health.md has each reason",
			"a device is good again a minute after its last cause; docs/health.md has the time of each cause",
		},
	}}
}

// lostDevices finds resources for which the kubelet uses another plugin.
func lostDevices(n *Node) []Finding {
	return []Finding{{
		ID: "kubelet-devices", Severity: Error,
		Summary:  "The kubelet does not use the devices that Tandem offers.",
		Evidence: n.daemons.lost,
		Why: "Another plugin that registers the same resource later replaces Tandem's. When that plugin ends, " +
			"a kubelet before 1.37 has no devices, and a later kubelet keeps the list of the plugin " +
			"that is gone.",
		Fix: []string{
			"remove the other plugin from this node: docs/deployers.md has the steps for its chart, " +
				"YAML or operator",
			"Tandem registers again once it is gone; where it does not within a minute, delete Tandem's pod of that " +
				"resource on this node",
		},
	}}
}

// runFolder finds an unusable run folder.
func runFolder(n *Node) []Finding {
	return []Finding{{
		ID: "run-folder", Severity: Error,
		Summary:  "The two daemons cannot use their run folder.",
		Evidence: evidenceOf(n.whyUnusable(n.RunDir)),
		Why:      "Each daemon then chooses independently, so that same-switch pairs occur only by chance.",
		Fix:      []string{"rm -r " + n.RunDir + ": the daemons create it again; or set another runDir"},
	}}
}

// runFolders finds daemons with different run folders.
func runFolders(n *Node) (findings []Finding) {
	for _, other := range coordination.RunDirs(n.KubeletDir) {
		if !n.daemons.answer || other == n.RunDir || dialSocket(coordination.SocketPath(other)) != nil {
			continue
		}
		findings = append(findings, Finding{
			ID: "run-folders", Severity: Error,
			Summary:  "The two daemons use different run folders.",
			Evidence: []string{fmt.Sprintf("one serves in %s and another in %s", n.RunDir, other)},
			Why:      "Each daemon chooses independently, so that same-switch pairs occur only by chance.",
			Fix: []string{"set the same --run-dir for both, or omit the flag to use the default " +
				coordination.RunDir(n.KubeletDir)},
		})
	}
	return findings
}

// bothModes finds device plugins next to the DRA driver. The lock of a mode prevents both, except with run
// folders that were invisible at the start.
func bothModes(n *Node) []Finding {
	modes, held := map[coordination.Mode]bool{}, []string{}
	dirs := append(coordination.RunDirs(n.KubeletDir), n.RunDir)
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		for _, m := range coordination.RunningModes(dir) {
			modes[m] = true
			held = append(held, coordination.ModeLock(dir, m)+" is held")
		}
	}
	return []Finding{{
		ID: "modes", Severity: Error,
		Summary:  "Device plugins and the DRA driver both allocate this node's devices.",
		Evidence: evidenceIf(len(modes) > 1, held...),
		Why:      "A device can be allocated to two pods.",
		Fix: []string{
			"remove one of them from this node (docs/dra.md has the steps); set the same --run-dir for all daemons",
		},
	}}
}
