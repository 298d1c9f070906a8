// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// lone is a resource with one device; a second one has vanished.
type lone struct{ member *coordination.Member }

func (lone) Name() string { return vfs }

func (l lone) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	for ctx.Err() == nil {
		all, again := l.member.List([]device.Device{{ID: "a", Healthy: true}})
		list := make([]deviceplugin.Device, 0, len(all))
		for _, d := range all {
			list = append(list, deviceplugin.Device{ID: d.ID, Healthy: d.Healthy})
		}
		publish(list)
		select {
		case <-again:
		case <-ctx.Done():
		}
	}
	return nil
}

func (lone) Allocate(context.Context, []string) (container.Edits, error) {
	return container.Edits{}, nil
}

// lister is the kubelet's end of a stream of lists.
type lister struct {
	grpc.ServerStream
	ctx  context.Context
	last atomic.Pointer[[]string] // IDs of the last list
}

func (l *lister) Context() context.Context { return l.ctx }

func (l *lister) Send(list *v1beta1.ListAndWatchResponse) error {
	var ids []string
	for _, d := range list.GetDevices() {
		ids = append(ids, d.GetID())
	}
	l.last.Store(&ids)
	return nil
}

// TestGoneDeviceWithoutACheckpoint: a device of a container is gone. While kubelet and plugin run, the
// checkpoint is removed, or replaced by one of unknown layout. The kubelet crashes without the device in
// the list.
func TestGoneDeviceWithoutACheckpoint(t *testing.T) {
	s := &scene{node: &node{dir: kubelettest.Dir(t)}}
	log := slog.New(slog.DiscardHandler)
	node, err := coordination.New(coordination.Config{
		RunDir: t.TempDir(), SysRoot: functions.Example().Folder(t), KubeletDir: s.dir, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stays := func(t *testing.T, checkpoint string) bool {
		s.record(t, held("running", vfs, "gone"))
		ctx, cancel := context.WithCancel(t.Context())
		lists := &lister{ctx: ctx}
		server, err := deviceplugin.New(deviceplugin.Options{
			KubeletDir: s.dir, Log: log,
			Serve: func(_ context.Context, plugin v1beta1.DevicePluginServer) error {
				return plugin.ListAndWatch(&v1beta1.Empty{}, lists)
			},
		}, lone{node.Member(vfs, device.VF)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- server.Run(ctx) }()
		defer func() { cancel(); <-done }()
		<-time.After(3 * time.Minute)
		if !slices.Contains(*lists.last.Load(), "gone") {
			t.Fatal("a container's gone device is not listed although the checkpoint has it")
		}
		s.writeCheckpoint(t, checkpoint)
		<-time.After(3 * time.Minute)
		return slices.Contains(*lists.last.Load(), "gone")
	}
	synctest.Test(t, func(t *testing.T) {
		if !stays(t, "not JSON") {
			t.Fatal("a container's gone device is not listed with an unreadable checkpoint")
		}
		for _, checkpoint := range unknownCheckpoints {
			if !stays(t, checkpoint) {
				t.Errorf("checkpoint %q: a container's gone device leaves the list of a running kubelet", checkpoint)
			}
		}
	})
}
