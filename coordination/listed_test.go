// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/topology"
)

// Devices that a container holds, or that the kubelet counts as healthy, are known to a plugin that no longer
// finds them after its restart, as unhealthy. Others are forgotten.
func TestListedOutlivesAPlugin(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	node, stop := start(t, dir)
	member := node.Member(gpus, device.GPU)
	member.Publish(device.Announcement{Devices: append(slices.Clone(threeGPUs.Devices[1:]), oneGPU.Devices...)})
	await(t, dir, connected(gpus))
	allocate(t, member, "gpu0")
	stop()
	again, _ := start(t, dir)
	record(t, again.config.KubeletDir, []string{"gpu2", "0000:c1:00.0"}, "gpu0", "gpu1")
	want := []device.Device{
		{ID: "gpu1", NUMA: topology.Node(1), Unit: topology.Unit{Name: "gpu1"}},
		{ID: "gpu2", Unit: topology.Unit{Name: "gpu2"}},
		{
			ID: "gpu0", Address: topology.Address{Bus: 1}, NUMA: topology.Node(0),
			Unit: topology.Unit{Name: "gpu0"},
		},
		{ID: "0000:c1:00.0", Address: topology.Address{Bus: 0xc1}, Unit: topology.Unit{Name: "0000:c1:00.0"}},
	}
	got, _ := again.Member(gpus, device.GPU).List(nil)
	if diff := cmp.Diff(want, got,
		cmpopts.EquateComparable(topology.NUMANode{}, topology.Address{})); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// record writes a checkpoint with healthy GPUs, and GPUs of containers, the i-th of which is on NUMA node i.
func record(t *testing.T, kubeletDir string, healthy []string, held ...string) {
	t.Helper()
	var all []checkpoint.Allocation
	for node, id := range held {
		all = append(all, checkpoint.Allocation{
			PodUID: "u", Container: "c", Resource: gpus, Devices: map[string][]string{fmt.Sprint(node): {id}},
		})
	}
	if err := checkpoint.Write(kubeletDir, all, map[string][]string{gpus: healthy}); err != nil {
		t.Fatal(err)
	}
}

// listing is the list of a plugin, below a kubelet without a checkpoint.
type listing struct {
	*listed
	t         *testing.T
	kubelet   string // its directory
	sentAgain int    // how often the plugin has to send the list again
}

func newListing(t *testing.T) *listing {
	t.Helper()
	l := &listing{t: t, kubelet: t.TempDir()}
	l.listed = &listed{
		resource: gpus, config: &Config{RunDir: t.TempDir()}, again: func() { l.sentAgain++ },
		recorded: kubelet.NewCheckpointReader(l.kubelet).Read, log: slog.New(slog.DiscardHandler),
	}
	return l
}

// want expects a list with found devices, "a b!" with ! for unhealthy, and lets time pass.
func (l *listing) want(found []device.Device, list string, pass time.Duration) {
	l.t.Helper()
	var words []string
	for _, d := range l.addFound(found) {
		words = append(words, d.ID+map[bool]string{false: "!"}[d.Healthy])
		if !d.Healthy && d.Reason != "" {
			l.t.Errorf("%s has failed: %s", d.ID, d.Reason)
		}
	}
	if got := strings.Join(words, " "); got != list {
		l.t.Errorf("listed %q, want %q", got, list)
	}
	<-time.After(pass)
	synctest.Wait()
}

var ab = []device.Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true, Degraded: true, Reason: "errors"}}

// A device that is gone stays listed, unhealthy, for a moment in any case, and while the kubelet may look it
// up or has no checkpoint. Until then the list is sent again and again.
func TestGoneDevicesLeaveTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		const pass = 3 * retireAfter / 2
		l.want(ab, "a b", pass)
		if l.sentAgain != 0 {
			t.Error("the list is sent again although nothing of it is gone")
		}
		l.want(ab[:1], "a b!", pass)
		l.want(ab[:1], "a b!", pass)
		record(t, l.kubelet, []string{"a"}, "b")
		l.want(ab[:1], "a b!", pass)
		l.want(ab, "a b", pass)
		l.want(ab[1:], "b a!", pass)
		record(t, l.kubelet, nil)
		l.want(nil, "b!", pass)
		if l.sentAgain != 5 {
			t.Errorf("the list is sent again %d times, want 5", l.sentAgain)
		}
		l.want(nil, "", pass)
		if l.sentAgain != 5 {
			t.Error("the list is sent again although nothing of it is gone any more")
		}
	})
}

// Later lists do not prolong the time for which a gone device stays in the list.
func TestGoneDevicesKeepTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		record(t, l.kubelet, nil)
		l.want(ab, "a b", retireAfter)
		l.want(ab[:1], "a b!", retireAfter/2)
		l.want(ab[:1], "a b!", retireAfter/2)
		l.want(ab[:1], "a", 0)
	})
}

// A device that is gone has no NUMA node once the others have none.
func TestGoneDevicesFollowTheHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		hinted := slices.Clone(ab)
		for i := range hinted {
			hinted[i].NUMA = topology.Node(i)
		}
		l.addFound(hinted)
		for name, c := range map[string]struct {
			found []device.Device
			numa  topology.NUMANode
		}{"hints": {hinted[:1], topology.Node(1)}, "no hints": {ab[:1], topology.NUMANode{}}} {
			l.before = hinted
			if list := l.addFound(c.found); len(list) != 2 || list[1].NUMA != c.numa {
				t.Errorf("%s: listed %v", name, list)
			}
		}
		l.later.Stop()
	})
}

// A run folder that is removed while the server runs is made again, and everybody meets there.
func TestRunDirIsRemoved(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	// Again, where the node has just written a file.
	for err := os.RemoveAll(dir); err != nil; err = os.RemoveAll(dir) {
		if !errors.Is(err, syscall.ENOTEMPTY) {
			t.Fatal(err)
		}
	}
	second, _ := start(t, dir)
	second.Member(vfs, device.VF).Publish(oneVF)
	await(t, dir, connected(gpus, vfs))
}

// The errors come over the socket as sentences.
func TestExplainOverTheSocket(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	if _, err := Explain(t.Context(), dir, "team", "train", ""); err == nil ||
		!strings.Contains(err.Error(), "no answer") {
		t.Errorf("nobody serves: %v", err)
	}
	join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	_, err := Explain(t.Context(), dir, "team", "train", "")
	if want := "explain pod team/train: not among the last 256 decisions, and unknown whether " +
		"the pod runs"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("no such pod: %v", err)
	}
	if _, err := Explain(t.Context(), dir, "team", "", ""); err == nil ||
		!strings.Contains(err.Error(), "which pod") {
		t.Errorf("a namespace alone: %v", err)
	}
	if all, err := Explain(t.Context(), dir, "", "", ""); err != nil || len(all.GetDecisions()) != 0 {
		t.Errorf("no name, and nothing was decided: %v, %v", all, err)
	}
}
