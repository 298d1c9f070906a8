// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
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
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// TestPolicyWithDropIn: the kubelet's file names a policy, and a drop-in overrides it by the required one,
// with an option. The coordinator plans by the rule of the folder if the folder is known, and otherwise by
// none of the file's.
func TestPolicyWithDropIn(t *testing.T) {
	dir := t.TempDir()
	const header = "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind + "\n"
	for name, content := range map[string]string{
		kubelet.ConfigFile: header + "topologyManagerPolicy: none\n",
		"kubelet.conf.d/99-tandem.conf": header + "topologyManagerPolicy: restricted\n" +
			"topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}\n",
		"devices/system/node/node0/distance": "10 21", "devices/system/node/node1/distance": "21 10",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for folder, want := range map[string]model.Rule{
		"": {},
		filepath.Join(dir, "kubelet.conf.d"): {
			Policy: model.Restricted, Machine: 3, Distances: [][]int{{10, 21}, {21, 10}},
		},
		filepath.Join(dir, "none"): {Policy: model.PolicyNone, Machine: 3},
	} {
		files := kubelet.ConfigFiles{Config: filepath.Join(dir, kubelet.ConfigFile), Dir: folder}
		k := newNodeKubelet(&Config{Kubelet: files, SysRoot: dir, Log: slog.New(slog.DiscardHandler)},
			&machine{tree: topology.Assemble(nil, nil, []int{0, 1})}, nil)
		if m, err := k.TopologyManager(); !reflect.DeepEqual(m.Rule, want) || (err != nil) != (folder == "") {
			t.Errorf("drop-ins in %q: the coordinator plans by %+v, %v; want %+v", folder, m, err, want)
		}
	}
}

// listener is a Publisher that says what it is told of health: a word for each device of each resource. It is
// told nothing where the alignment is not required.
type listener chan []bool

func (p listener) Publish(ctx context.Context, plugins Announced) error {
	for plugins.Policy().Alignment == intent.Required {
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
	return errors.New("the policy is another")
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

// TestPublisher: who publishes is told of every announcement, of a plugin that leaves, and of the policy; and
// only where its plugin serves.
func TestPublisher(t *testing.T) {
	dir, first, second := shortDir(t)+"/run", make(listener), make(listener)
	strict := intent.Config{Policy: intent.Policy{Alignment: intent.Required}}
	a, stop := startWith(t, Config{RunDir: dir, Publisher: first, Intent: strict})
	member := a.Member(gpus, device.GPU)
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0", Healthy: true}}})
	first.await(t, true)
	await(t, dir, func(s *api.StatusResponse) bool { return slices.Equal(s.GetNotes(), []string{"a note"}) })
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0"}}})
	first.await(t, false)

	b, _ := startWith(t, Config{RunDir: dir, Publisher: second, Intent: strict})
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
