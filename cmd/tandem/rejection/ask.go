// SPDX-License-Identifier: Apache-2.0

package rejection

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// kubeletTimeout limits the question to the kubelet, which answers in milliseconds.
const kubeletTimeout = 5 * time.Second

// Pods returns the pods of a kubelet that its Topology Manager has rejected and nobody has deleted. The
// caller needs root's rights alone.
func Pods(ctx context.Context, kubeletDir string) (rejected []*corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	err = kubelet.ListPods(ctx, kubeletDir, func(pod *corev1.Pod) {
		if intent.IsRejected(pod) {
			rejected = append(rejected, pod.DeepCopy())
		}
	})
	return rejected, err
}

// Ask explains a rejected pod of this node; nil if the kubelet lists no rejected pod of the name. The
// namespace may be "", for any.
func Ask(ctx context.Context, runDir, kubeletDir, namespace, name string) (*Rejection, error) {
	pods, err := Pods(ctx, kubeletDir)
	if err != nil {
		return nil, fmt.Errorf("find rejected pods: %w", err)
	}
	for _, pod := range pods {
		if pod.Name != name || namespace != "" && pod.Namespace != namespace {
			continue
		}
		answer, err := coordinator.AskStatus(ctx, runDir)
		if err != nil {
			return nil, fmt.Errorf("compare rejected pod %s/%s with the node: %w", pod.Namespace, name, err)
		}
		status := coordinator.NewStatus(answer)
		decisions := kubelet.Read(coordinator.AskDecisions(ctx, runDir, "", "", ""))
		manager := NewManager(configuration.Read(configuration.Files{
			Config: filepath.Join(kubeletDir, configuration.FileName),
		}, nil))
		r := Explain(pod, &status, decisions, manager)
		return &r, nil
	}
	return nil, nil
}

// Manager is the Topology Manager that has rejected a pod.
type Manager struct {
	devicemanager.Kubelet
	Assumed string // why policy and scope are those that Tandem requires; "" if these are the kubelet's
}

// NewManager returns the Topology Manager by the settings of its kubelet, as a reader has returned these.
func NewManager(settings configuration.Settings, err error) (m Manager) {
	var read model.Kubelet
	if err == nil {
		read, err = model.NewKubelet(settings)
	}
	if err == nil {
		m.Kubelet, err = read.TopologyManager(nil)
	}
	if p := m.Rule.Policy; err == nil && p != hints.Restricted && p != hints.SingleNUMANode {
		err = fmt.Errorf("policy %s rejects no pod: a drop-in or a flag has another, or it has changed since", p)
	}
	if err != nil {
		return Manager{devicemanager.Kubelet{Rule: model.Documented(nil)}, err.Error()}
	}
	return m
}
