// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// PodQuestion asks for the explanation of a pod.
type PodQuestion struct {
	Namespace, Pod string // the namespace may be "", for any
	Container      string // "" for all of the pod
	Present        presentPod
	All            bool // with the decisions for deleted pods of the name
}

// RegisterFlags adds the flags that narrow or widen the explanation.
func (q *PodQuestion) RegisterFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&q.Container, "container", "c", "",
		"show only this container of the pod (default all containers)")
	flags.BoolVar(&q.All, "all", false,
		"also show the decisions for deleted pods of the same name, at the end")
}

// SetPod takes the pod from [NAMESPACE/]POD.
func (q *PodQuestion) SetPod(name string) error {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		namespace, pod = "", name
	}
	if pod == "" || strings.Contains(pod, "/") {
		return cli.NewUsageError("pod %q: want [NAMESPACE/]POD", name)
	}
	q.Namespace, q.Pod = namespace, pod
	return nil
}

// PodExplanation is the explanation of a pod, as -o json prints it: the decisions of the plugins or, for a
// pod that the kubelet's Topology Manager has rejected, the comparison with the node.
type PodExplanation struct {
	Version   cli.V1     `json:"version"`
	Decisions []Decision `json:"decisions"` // in the order in which the kubelet came
	Rejection *Rejection `json:"rejection,omitempty"`
}

// Explain asks the kubelet whether it has rejected the pod, then the plugins for their decisions. Without an
// answer of the plugins the error also has the reason why a rejection is unknown.
func (f Folders) Explain(ctx context.Context, q PodQuestion) (known PodExplanation, err error) {
	known.Decisions = []Decision{}
	rejection, unknown := f.askRejection(ctx, q)
	if rejection != nil {
		known.Rejection = rejection
		return known, nil
	}
	known.Decisions, err = f.askDecisions(ctx, q)
	if err != nil && unknown != nil {
		err = fmt.Errorf("%w; %w", err, unknown)
	}
	markEarlier(known.Decisions, q.Present)
	return known, err
}

// formatText returns the explanation for people, by the present status of the plugins, with the
// decisions for deleted pods if all are asked for.
func (f Folders) formatText(ctx context.Context, known PodExplanation, all bool) *cli.Text {
	if known.Rejection != nil {
		return known.Rejection.Text()
	}
	if now, err := f.askStatus(ctx); err == nil {
		return explainDecisions(known.Decisions, &now, all)
	}
	return explainDecisions(known.Decisions, nil, all)
}

// askDecisions returns the decisions for a pod, all decisions for the empty question. The time limit is 5
// seconds.
func (f Folders) askDecisions(ctx context.Context, q PodQuestion) ([]Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := coordination.Explain(ctx, runFolder(f.RunDir), q.Namespace, q.Pod, q.Container)
	if err != nil {
		return nil, err
	}
	return newDecisions(answer), nil
}

// listPods returns the pods with known decisions as namespace/pod, sorted.
func (f Folders) listPods(ctx context.Context) ([]string, error) {
	decisions, err := f.askDecisions(ctx, PodQuestion{})
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, d := range decisions {
		if names := strings.Split(d.Container, "/"); len(names) == 3 && names[0] != "" {
			pods = insertSorted(pods, names[0]+"/"+names[1])
		}
	}
	return pods, nil
}

// askRejection explains the rejected pod; nil if the kubelet lists no rejected pod of the name.
func (f Folders) askRejection(ctx context.Context, q PodQuestion) (*Rejection, error) {
	pods, err := RejectedPods(ctx, f.KubeletDir)
	if err != nil {
		return nil, fmt.Errorf("find rejected pods: %w", err)
	}
	for _, pod := range pods {
		if pod.Name != q.Pod || q.Namespace != "" && pod.Namespace != q.Namespace {
			continue
		}
		status, err := f.askStatus(ctx)
		if err != nil {
			return nil, fmt.Errorf("compare rejected pod %s/%s with the node: %w", pod.Namespace, pod.Name, err)
		}
		decisions := kubelet.Read(f.askDecisions(ctx, PodQuestion{}))
		r := ExplainRejection(pod, &status, decisions, kubelet.Read(f.readSettings()))
		return &r, nil
	}
	return nil, nil
}

// RejectedPods returns the pods of a kubelet that its Topology Manager has rejected and nobody has deleted.
// The caller needs root's rights alone.
func RejectedPods(ctx context.Context, kubeletDir string) (rejected []*corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = kubelet.ListPods(ctx, kubeletDir, func(pod *corev1.Pod) {
		if intent.IsRejected(pod) {
			rejected = append(rejected, pod.DeepCopy())
		}
	})
	return rejected, err
}

// readSettings reads the settings of the kubelet: by its process, or without one by the usual file alone.
func (f Folders) readSettings() (kubelet.Settings, error) {
	p, err := machine.FindProcess(cmp.Or(f.ProcRoot, "/proc"))
	if err != nil {
		return kubelet.Settings{}, err
	}
	its, err := os.Stat(p.RootDir())
	if folder, other := os.Stat(f.KubeletDir); err != nil || other != nil || !os.SameFile(its, folder) {
		p = machine.Process{}
	}
	return kubelet.ReadSettings(p.Files(kubelet.ConfigFiles{}, f.KubeletDir), p.Flags)
}
