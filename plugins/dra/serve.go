// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// server serves the kubelet.
type server struct {
	*claimService

	calls calls
	fatal chan error // reason for the end of the driver
}

var _ kubeletplugin.DRAPlugin = (*server)(nil)

// startHelper opens the sockets for the kubelet.
func (s *server) startHelper(ctx context.Context) (*kubeletplugin.Helper, error) {
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(pool.Driver),
		kubeletplugin.NodeName(s.config.NodeName),
		kubeletplugin.KubeClient(s.config.Client),
		kubeletplugin.PluginDataDirectoryPath(PluginDir(s.config.KubeletDir)),
		kubeletplugin.RegistrarDirectoryPath(registryDir(s.config.KubeletDir)),
		kubeletplugin.RollingUpdate(types.UID(s.config.PodUID)),
		kubeletplugin.Serialize(true),
		kubeletplugin.GRPCInterceptor(s.interceptCall),
	}
	if listen := s.config.Listen; listen != nil {
		options = append(options, kubeletplugin.PluginListener(listen), kubeletplugin.RegistrarListener(listen))
	}
	helper, err := kubeletplugin.Start(ctx, s, options...)
	if err != nil {
		return nil, fmt.Errorf("serve the kubelet: %w", err)
	}
	return helper, nil
}

// interceptCall counts the calls, and derives from them whether the kubelet knows the driver.
func (s *server) interceptCall(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if !s.calls.beginCall() {
		return nil, status.Error(codes.Unavailable, "the driver ends; another one follows")
	}
	defer s.calls.active.Done()
	answer, err := handle(ctx, request)
	if told, ok := request.(*registerapi.RegistrationStatus); ok && told.GetPluginRegistered() {
		s.config.Log.Info("registered with the kubelet")
		if s.config.Observer != nil {
			s.config.Observer.Registered(pool.Driver)
		}
		s.publisher.again.Fire() // a starting kubelet deletes the published slices
	}
	return answer, err
}

// HandleError receives background errors of the helper: published data has lost fields that the cluster does
// not support; it cannot be written at the moment; or a socket failed, which ends the driver.
func (s *server) HandleError(_ context.Context, err error, msg string) {
	if dropped := (*resourceslice.DroppedFieldsError)(nil); errors.As(err, &dropped) {
		if s.viewer.gates.recordLoss(dropped.DisabledFeatures()) {
			s.viewer.changed.Fire()
			return
		}
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		select {
		case s.fatal <- fmt.Errorf("%s: %w", msg, err):
		default: // the driver already ends for another reason
		}
		return
	}
	s.complaints.reportError(msg, err)
}

// awaitFatal returns the reason for the end of the driver, or nil when ctx is done.
func (s *server) awaitFatal(ctx context.Context) error {
	select {
	case err := <-s.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
}

// calls are the kubelet's calls in flight. The zero value accepts calls.
type calls struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

// beginCall accepts a call; it returns false after awaitCalls.
func (c *calls) beginCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.active.Add(1)
	}
	return !c.ended
}

// awaitCalls rejects new calls and waits for the calls in flight, for at most limit.
func (c *calls) awaitCalls(limit time.Duration) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.active.Wait()
	}()
	select {
	case <-answered:
	case <-time.After(limit): // a hanging call ends with the process
	}
}

// The kubelet assumes unknown health of a device after the lease; the driver reports well before.
const (
	healthLease = 60 * time.Second
	healthPause = 20 * time.Second
)

// WatchHealthStatus reports the health of all devices to the kubelet, after each change and periodically,
// until ctx is done.
func (s *server) WatchHealthStatus(
	ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport,
) error {
	if s.config.Drain { // devices are not scanned
		return kubeletplugin.ErrHealthNotSupported
	}
	again := time.NewTicker(healthPause)
	defer again.Stop()
	for {
		v, changed := s.newest.Watch()
		report := kubeletplugin.DeviceHealthReport{Devices: s.readHealth(v)}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// readHealth returns the health of every published device, and of the devices of claims: of those that
// containers have, which can be others than those that the name stands for.
func (s *server) readHealth(v *view) []kubeletplugin.DeviceHealth {
	now := time.Now()
	told := map[string]kubeletplugin.DeviceHealth{}
	tell := func(name string, parts []string) {
		health := kubeletplugin.DeviceHealth{
			PoolName: s.config.NodeName, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy,
			LastUpdated: now, HealthCheckTimeout: healthLease, Message: v.State.Machine.Failure(parts),
		}
		if health.Message != "" {
			health.Health = kubeletplugin.HealthStatusUnhealthy
		}
		told[name] = health
	}
	for name, device := range v.State.Pool.Devices {
		tell(name, slices.Concat(device.GPUs, device.VFs))
	}
	for _, claim := range v.claims() {
		for _, given := range claim.Devices {
			if _, known := told[given.Device]; !known || !given.Admin {
				tell(given.Device, slices.Concat(given.GPUs, given.VFs))
			}
		}
	}
	return slices.SortedFunc(maps.Values(told), func(a, b kubeletplugin.DeviceHealth) int {
		return cmp.Compare(a.DeviceName, b.DeviceName)
	})
}
