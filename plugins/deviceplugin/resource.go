// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// Device is a device as reported to the kubelet.
type Device struct {
	ID      string // at most 63 characters; part of the kubelet's state, so it never changes for a device
	Healthy bool
	Nodes   []int // NUMA nodes for the Topology Manager; empty means no preference
}

// Resource provides the devices of one resource name.
type Resource interface {
	// Name returns the resource name, "amd.com/gpu".
	Name() string
	// Watch calls publish with the complete list of devices, once at the start and after every change, until
	// ctx is done. A device that is gone stays in the list, unhealthy, while the kubelet may look it up.
	Watch(ctx context.Context, publish func([]Device)) error
	// Allocate gives a container the devices with these IDs. An error makes the kubelet fail the pod.
	Allocate(ctx context.Context, ids []string) (container.Edits, error)
}

// Preferrer is a Resource that has a preference among free devices. The server offers GetPreferredAllocation
// to the kubelet only for a Resource that implements Preferrer.
type Preferrer interface {
	// Prefer returns size of the available devices, including the mustInclude ones. It cannot fail, because
	// an error from GetPreferredAllocation would make the kubelet fail the pod. It answers within 100 ms.
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	// Alone is Prefer based only on the plugin's own data: it makes no calls and does not wait. The server
	// calls it if Prefer has not answered in time, possibly while Prefer still runs.
	Alone(available, mustInclude []string, size int) []string
}

// CheckName returns an error if the kubelet would reject the name of a resource (IsExtendedResourceName in
// pkg/apis/core/v1/helper/helpers.go).
func CheckName(name string) error {
	const quota = "requests." // prefix under which Kubernetes counts a resource in quotas
	if problems := content.IsLabelKey(quota + name); len(problems) > 0 || !strings.Contains(name, "/") {
		problems = append([]string{"want a name like vendor.com/kind"}, problems...)
		return fmt.Errorf("offer resource %q: %s", name, strings.Join(problems, "; "))
	}
	if strings.HasPrefix(name, quota) || strings.Contains(name, "kubernetes.io/") {
		return fmt.Errorf("offer resource %q: Kubernetes keeps kubernetes.io/ and %s for itself", name, quota)
	}
	return nil
}

// Keep merges the devices that are found into the known devices, both by ID. A known device that is no longer
// found stays, as gone converts it: from 1.34 on the kubelet process crashes when a device vanishes that a
// container holds or is just getting (allDevices is accessed without a check in
// pkg/kubelet/cm/devicemanager/manager.go). Keep changes neither map.
func Keep[D any](known, found map[string]D, gone func(D) D) map[string]D {
	all := make(map[string]D, max(len(known), len(found)))
	for id, d := range known {
		if _, there := found[id]; !there {
			all[id] = gone(d)
		}
	}
	maps.Copy(all, found)
	return all
}

// RegistrationObserver receives events of a Server. Its methods must return immediately.
type RegistrationObserver interface {
	// Offered: the resource has devices, so the kubelet should know it; Registered: the kubelet opened the
	// device list stream; Unregistered: the kubelet no longer uses this plugin. The server registers again
	// when another plugin that took over the resource is gone.
	Offered(resource string)
	Registered(resource string)
	Unregistered(resource string, cause error)
	// Preferred: a GetPreferredAllocation was answered.
	Preferred(resource string, took time.Duration)
}

// unobserved is a RegistrationObserver that does nothing.
type unobserved struct{}

func (unobserved) Offered(string)                  {}
func (unobserved) Registered(string)               {}
func (unobserved) Unregistered(string, error)      {}
func (unobserved) Preferred(string, time.Duration) {}
