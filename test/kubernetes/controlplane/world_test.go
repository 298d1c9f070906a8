// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/kubelet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/node"
	"github.com/tandem-k8s/tandem/topology"
)

// worker is a node with a recorded machine, a kubelet and the driver.
type worker struct {
	*node.Machine
	c       *cluster
	t       testing.TB
	name    string
	dir     string
	kubelet *kubelet.Kubelet
	daemon  *node.Daemon
	starts  int // of daemons
	earlier []kubelet.Prepared

	mu     sync.Mutex
	given  map[types.UID]node.Given                 // by pod, from prepare to unprepare
	holder map[topology.Address]types.UID           // the pod that has a device
	wrong  []string                                 // what must not be
	judge  func(*worker, *v1.Pod, node.Given) error // whether a pod got what it should
}

// join adds a node with a recorded machine to the cluster, with this many VFs on each PF.
func (c *cluster) join(name, machine string, vfs int) *worker {
	c.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dra-")
	if err != nil {
		c.t.Fatal(err)
	}
	library, err := filepath.Abs(filepath.Join(*bin, "nvml/libnvidia-ml.so.1"))
	if err != nil {
		c.t.Fatal(err)
	}
	w := &worker{
		c: c, t: c.t, name: name, dir: dir,
		given: map[types.UID]node.Given{}, holder: map[topology.Address]types.UID{},
		judge: func(*worker, *v1.Pod, node.Given) error { return nil },
	}
	c.t.Cleanup(w.leave)
	if w.Machine, err = node.LayOut(dir, machine, vfs, library); err != nil {
		c.t.Fatal(err)
	}
	c.node(name)
	w.startKubelet()
	w.daemon = w.startDaemon()
	w.ready()
	return w
}

// leave ends what runs on the node. When the test has failed, the daemons' logs are kept.
func (w *worker) leave() {
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	if w.daemon != nil {
		w.daemon.Stop()
	}
	if w.t.Failed() {
		w.c.Keep(filepath.Join(w.dir, "*.log"))
	}
	w.kubelet, w.daemon = nil, nil
	os.RemoveAll(w.dir)
}

func (w *worker) startKubelet() {
	w.t.Helper()
	started, err := kubelet.Start(context.Background(), kubelet.Options{
		Node: w.name, Dir: w.Kubelet(), Client: w.c.Client(w.c.Node(w.name)),
		Prepared: w.prepared, Ending: w.ending,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.kubelet = started
}

// restartKubelet does what an upgrade of the kubelet does.
func (w *worker) restartKubelet() {
	w.t.Helper()
	w.kubelet.Stop()
	w.earlier = append(w.earlier, w.kubelet.Log()...)
	w.startKubelet()
}

// startDaemon starts another daemon, with a token for this node alone.
func (w *worker) startDaemon() *node.Daemon {
	w.t.Helper()
	program, err := filepath.Abs(filepath.Join(*bin, "tandem-dra"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.starts++
	pod := w.c.daemonPod(fmt.Sprintf("tandem-dra-%s-%d", w.name, w.starts), w.name, w.Folders()...)
	started, err := w.Start(node.Options{
		Program: program, Node: w.name, Kubeconfig: w.c.Kubeconfig(w.c.token(pod)), PodUID: string(pod.UID),
		Log: filepath.Join(w.Dir, fmt.Sprintf("%s-%02d.log", w.name, w.starts)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return started
}

// ready waits until the newest daemon is ready, and the API server has all slices of the node.
func (w *worker) ready() {
	w.t.Helper()
	if err := w.waitReady(w.daemon); err != nil {
		w.t.Fatal(err)
	}
}

func (w *worker) waitReady(daemon *node.Daemon) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	err := kubelet.Until(ctx, func() error { return daemon.Ready(ctx) })
	if err == nil {
		err = w.c.published(ctx, w.name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; the daemon's log is\n%s", w.name, err, daemon.Text())
	}
	return nil
}

// prepared looks at what a pod is given, which nobody else may have.
func (w *worker) prepared(pod *v1.Pod, devices map[string][]string) {
	var all []string
	for _, container := range pod.Spec.Containers {
		all = append(all, devices[container.Name]...)
	}
	given, err := w.Give(all)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		err = w.judge(w, pod, given)
	}
	if err != nil {
		w.wrong = append(w.wrong, fmt.Sprintf("pod %s on %s: %v", pod.Name, w.name, err))
	}
	for _, device := range append(given.GPUs, given.VFs...) {
		if other, taken := w.holder[device]; taken && other != pod.UID {
			w.wrong = append(w.wrong, fmt.Sprintf("%s on %s has pod %s, and pod %s too", device, w.name,
				pod.UID, other))
		}
		w.holder[device] = pod.UID
	}
	w.given[pod.UID] = given
}

// ending takes back what a pod had.
func (w *worker) ending(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	given := w.given[pod.UID]
	for _, device := range append(given.GPUs, given.VFs...) {
		delete(w.holder, device)
	}
	delete(w.given, pod.UID)
}

// check fails the test when something was wrong.
func (w *worker) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wrong := range w.wrong {
		w.t.Error(wrong)
	}
	w.wrong = nil
}

// log is what the kubelets of the node have prepared.
func (w *worker) log() []kubelet.Prepared { return append(w.earlier, w.kubelet.Log()...) }

// daemonPod is the pod of a DaemonSet in which the daemon would be. It is bound to its node from the start.
func (c *cluster) daemonPod(name, node string, flags ...string) *v1.Pod {
	c.t.Helper()
	pod := podOf(name)
	pod.Labels = map[string]string{"app.kubernetes.io/name": "tandem-dra"}
	pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = []string{"tandem-dra"}, flags
	pod.Namespace, pod.Spec.ServiceAccountName, pod.Spec.NodeName = daemonNamespace, daemonAccount, node
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	pod.Spec.Volumes = []v1.Volume{{Name: "sys", VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: "/sys"},
	}}}
	return c.create(pod)
}

const (
	daemonNamespace = metav1.NamespaceSystem
	daemonAccount   = "tandem-dra"
)

// token is that of a pod's service account, as the kubelet mounts it: it names the pod and its node.
func (c *cluster) token(pod *v1.Pod) string {
	c.t.Helper()
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		BoundObjectRef: &authentication.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		},
	}}
	made, err := c.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(c.t.Context(),
		pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Status.Token
}

// published waits until the API server has all slices of a node's pool.
func (c *cluster) published(ctx context.Context, node string) error {
	watch, err := c.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch ResourceSlices: %w", err)
	}
	defer watch.Stop()
	for {
		list, err := c.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + node + ",spec.driver=" + pool.Driver,
		})
		if err != nil {
			return fmt.Errorf("list ResourceSlices: %w", err)
		}
		if n := len(list.Items); n > 0 && int64(n) == list.Items[0].Spec.Pool.ResourceSliceCount {
			return nil
		}
		select {
		case _, ok := <-watch.ResultChan():
			if !ok {
				return errors.New("watch ResourceSlices: the API server has ended it")
			}
		case <-ctx.Done():
			return fmt.Errorf("the driver has published %d slices: %w", len(list.Items), context.Cause(ctx))
		}
	}
}
