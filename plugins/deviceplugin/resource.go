package deviceplugin

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Device is one device as the kubelet gets to know it.
type Device struct {
	ID      string // at most 63 characters; the kubelet's state hangs on it, so it never changes for a device
	Healthy bool
	Nodes   []int // NUMA nodes for the Topology Manager; empty for none, which means "no preference"
}

// Resource is what a plugin offers under one resource name.
type Resource interface {
	// Name is the resource name, "amd.com/gpu".
	Name() string
	// Watch calls publish with the full list of devices, once at the start and again on every change, until ctx
	// is done. A device that was published stays in the list: once it is gone it is unhealthy.
	Watch(ctx context.Context, publish func([]Device)) error
	// Allocate gives a container the devices with these IDs. An error makes the kubelet fail the pod.
	Allocate(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error)
}

// Preferrer is a Resource that has a preference among its free devices. The kubelet is told of
// GetPreferredAllocation if, and only if, a Resource implements it.
type Preferrer interface {
	// Prefer picks size of the available devices, the mustInclude ones among them. It cannot fail: an error from
	// GetPreferredAllocation would make the kubelet fail the pod. It answers within 100 ms.
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	// Alone picks as Prefer does, by what the plugin knows itself: it asks nobody and waits for nothing. It is
	// asked where Prefer has not answered in time, also while that goes on.
	Alone(available, mustInclude []string, size int) []string
}

// CheckName says what is wrong with a resource's name, which the kubelet would refuse, whatever else is right
// with the resource (IsExtendedResourceName in pkg/apis/core/v1/helper/helpers.go).
func CheckName(name string) error {
	const quota = "requests." // under which Kubernetes counts a resource
	if problems := content.IsLabelKey(quota + name); len(problems) > 0 || !strings.Contains(name, "/") {
		problems = append([]string{"want a name like vendor.com/kind"}, problems...)
		return fmt.Errorf("offer resource %q: %s", name, strings.Join(problems, "; "))
	}
	if strings.HasPrefix(name, quota) || strings.Contains(name, "kubernetes.io/") {
		return fmt.Errorf("offer resource %q: Kubernetes keeps kubernetes.io/ and %s for itself", name, quota)
	}
	return nil
}
