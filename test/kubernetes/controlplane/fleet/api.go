// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// namespace has all pods.
const namespace = "default"

// path is the path of the published objects in the API server.
var path = "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Plural

// writers limits concurrent writes. Writes for one node or pod are sequential.
const writers = 8

// api writes to the API server.
type api struct {
	client kubernetes.Interface
	rest   rest.Interface
	writes [writers]chan func(context.Context) error
	ctx    context.Context
	mu     sync.Mutex
	failed error
}

func newAPI(client kubernetes.Interface) *api {
	a := &api{client: client, rest: client.Discovery().RESTClient()}
	for i := range a.writes {
		a.writes[i] = make(chan func(context.Context) error, 1<<14)
	}
	return a
}

// start starts the writers. The returned function waits for their end, after ctx is done, and returns the
// first failure.
func (a *api) start(ctx context.Context) func() error {
	a.ctx = ctx
	var group sync.WaitGroup
	for _, writes := range a.writes {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case write := <-writes:
					if err := write(ctx); err != nil && ctx.Err() == nil {
						a.mu.Lock()
						a.failed = errors.Join(a.failed, err)
						a.mu.Unlock()
					}
				}
			}
		})
	}
	return func() error {
		group.Wait()
		return a.failed
	}
}

// later writes when its turn comes.
func (a *api) later(key string, write func(context.Context) error) {
	hash := fnv.New32a()
	hash.Write([]byte(key))
	select {
	case a.writes[hash.Sum32()%writers] <- write:
	case <-a.ctx.Done():
	}
}

// phase writes a pod's phase to its status.
func (a *api) phase(pod *v1.Pod, phase v1.PodPhase, reason, message string) {
	status := v1.PodStatus{Phase: phase, Reason: reason, Message: message}
	if phase == v1.PodRunning {
		status.StartTime = new(metav1.Now())
	}
	a.later(pod.Name, func(ctx context.Context) error {
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return err
		}
		_, err = a.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	})
}

// remove deletes a pod that has ended. The pod may be gone already.
func (a *api) remove(pod *v1.Pod) {
	a.later(pod.Name, func(ctx context.Context) error {
		err := a.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// publish writes the holdings of a node's pods.
func (a *api) publish(node string, held []v1alpha1.Held) {
	a.later(node, func(ctx context.Context) error {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"held": held}})
		if err != nil {
			return err
		}
		return a.rest.Patch(types.MergePatchType).AbsPath(path, node).Body(patch).Do(ctx).Error()
	})
}

// create creates a pod.
func (a *api) create(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return a.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// again creates a pod when its turn comes.
func (a *api) again(pod *v1.Pod) {
	a.later(pod.Name, func(ctx context.Context) error {
		_, err := a.create(ctx, pod)
		return err
	})
}

// node creates a schedulable node.
func (a *api) node(ctx context.Context, node *v1.Node) error {
	if _, err := a.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	return nil
}

// object creates the object of a node.
func (a *api) object(ctx context.Context, t *v1alpha1.NodeTopology) error {
	text, err := json.Marshal(runtime.Object(t))
	if err != nil {
		return err
	}
	if err := a.rest.Post().AbsPath(path).Body(text).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create NodeTopology %s: %w", t.Name, err)
	}
	return nil
}
