// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestPolicyWithDropIn: the kubelet's file names a policy, and a drop-in has the
// required one into the folder of drop-ins, which overrides the file. The coordinator plans by the policy of
// the folder if the folder is known, and otherwise by none of the file's.
func TestPolicyWithDropIn(t *testing.T) {
	dir := t.TempDir()
	const header = "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind + "\n"
	for name, policy := range map[string]model.Policy{
		kubelet.ConfigFile: model.PolicyNone, "kubelet.conf.d/99-tandem.conf": model.Restricted,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := header + "topologyManagerPolicy: " + string(policy) + "\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, kubelet.ConfigFile)
	for folder, want := range map[string]model.Policy{
		"": "", filepath.Join(dir, "kubelet.conf.d"): model.Restricted,
		filepath.Join(dir, "none"): model.PolicyNone,
	} {
		files := kubelet.ConfigFiles{Config: file, Dir: folder}
		k := newNodeKubelet(&Config{Kubelet: files, SysRoot: dir, Log: slog.New(slog.DiscardHandler)},
			&machine{tree: noTree()}, nil)
		if m, err := k.TopologyManager(); m.Rule.Policy != want && want != "" || (err != nil) != (want == "") {
			t.Errorf("drop-ins in %q: the coordinator plans by %+v, %v; want %q", folder, m, err, want)
		}
	}
}

func noTree() *topology.Tree { return topology.Assemble(nil, nil, []int{0, 1}) }

// TestRuleOfOptions: options count, and with one that is not understood the rule is unknown, which refuses
// nobody.
func TestRuleOfOptions(t *testing.T) {
	dir := t.TempDir()
	files := kubelet.ConfigFiles{Config: filepath.Join(dir, "config.yaml"), Dir: dir}
	for node, distances := range []string{"10 21", "21 10"} {
		folder := filepath.Join(dir, fmt.Sprintf("devices/system/node/node%d", node))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "distance"), []byte(distances), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for option, want := range map[string]model.Rule{
		"": {Policy: model.Restricted, Machine: 3},
		`prefer-closest-numa-nodes: "true"`: {
			Policy: model.Restricted, Machine: 3, Distances: [][]int{{10, 21}, {21, 10}},
		},
		`max-allowable-numa-nodes: "16"`: {Policy: model.Restricted, Machine: 3, MaxNodes: 16},
		`prefer-far-numa-nodes: "true"`:  {},
	} {
		content := "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind +
			"\ntopologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {" + option + "}\n"
		if err := os.WriteFile(files.Config, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readManager(files, os.DirFS(dir), noTree())
		if (err != nil) != (want.Policy == "") || err == nil && !reflect.DeepEqual(m.Rule, want) {
			t.Errorf("option %q: %+v, %v; want %+v", option, m, err, want)
		}
	}
}

// listener is a Publisher that says what it is told of health: a word for each device of each resource.
type listener chan []bool

func (p listener) Publish(ctx context.Context, plugins Announced) error {
	for {
		newest, changed := plugins.Announced()
		var healthy []bool
		for _, r := range newest.Resources {
			for _, d := range r.Devices {
				healthy = append(healthy, r.Joined && d.Healthy)
			}
		}
		select {
		case p <- healthy:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (listener) Notes() []string { return []string{"a note"} }

// await waits until a publisher is told of these.
func (p listener) await(t *testing.T, want ...bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case got := <-p:
			if slices.Equal(got, want) {
				return
			}
		case <-limit:
			t.Fatal("the publisher is not told")
		}
	}
}

// TestPublisher: who publishes is told of every announcement, and of a plugin that leaves; and only where its
// plugin serves.
func TestPublisher(t *testing.T) {
	dir, first, second := shortDir(t)+"/run", make(listener), make(listener)
	a, stop := startWith(t, Config{RunDir: dir, Publisher: first, Log: slog.New(slog.DiscardHandler)})
	member := a.Member(gpus, device.GPU)
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0", Healthy: true}}})
	first.await(t, true)
	await(t, dir, func(s *api.StatusResponse) bool { return slices.Equal(s.GetNotes(), []string{"a note"}) })
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0"}}})
	first.await(t, false)

	b, _ := startWith(t, Config{RunDir: dir, Publisher: second, Log: slog.New(slog.DiscardHandler)})
	b.Member(vfs, device.VF).Publish(device.Announcement{Devices: []device.Device{{ID: "1", Healthy: true}}})
	first.await(t, false, true)
	select {
	case <-second:
		t.Error("two publish the node")
	default:
	}
	stop()
	second.await(t, false, true)
}

// failing is a Publisher that fails twice, in two ways, and says when it works.
type failing struct {
	calls int
	works chan struct{}
}

func (p *failing) Publish(ctx context.Context, _ Announced) error {
	switch p.calls++; p.calls {
	case 1:
		panic("a mistake")
	case 2:
		return errors.New("a fault")
	}
	close(p.works)
	<-ctx.Done()
	return nil
}

func (*failing) Notes() []string { return nil }

// A publisher that fails is called again while its plugin serves.
func TestPublisherThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &failing{works: make(chan struct{})}
		c := &Config{Publisher: p, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := time.Now(), make(chan struct{})
		go func() { publishNode(ctx, c, published{}); close(ended) }()
		select {
		case <-p.works:
		case <-time.After(time.Hour):
			t.Error("it is not called again")
		}
		if got := time.Since(begun); got > 2*publishPause {
			t.Errorf("it works again after %s", got)
		}
		cancel()
		<-ended
	})
}

// The tree is read again for what another process announces, and for a healthy device that it lacks; not for
// what was announced by a plugin that has read it.
func TestTreeIsReadOncePerChange(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(root, machines.Sys(t, "oci-mi300x-derived", 0)); err != nil {
		t.Fatal(err)
	}
	announce := func(id string, own, healthy bool) device.Announcement {
		address, err := topology.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		return device.Announcement{Own: own, Devices: []device.Device{{ID: id, Address: address, Healthy: healthy}}}
	}
	m := &machine{source: newTreeReader(root)}
	if _, err := m.read(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		announcement device.Announcement
		read         bool
	}{
		{"its own plugin's, known", announce("0000:0c:00.0", true, true), false},
		{"its own plugin's, gone", announce("0000:0c:00.7", true, false), false},
		{"its own plugin's, new", announce("0000:0c:00.1", true, true), true},
		{"another process's", announce("0000:0c:00.0", false, true), true},
	} {
		before := m.Newest()
		err := m.Refresh(c.announcement)
		if read := m.Newest() != before; err != nil || read != c.read {
			t.Errorf("%s: read %t, want %t; %v", c.name, read, c.read, err)
		}
	}
}
