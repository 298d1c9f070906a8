// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// required is the word for a pod whose pairs must be near.
const required = "required"

// parsePod reads a pod from words such as "train gpu=2 vf=2 required".
func (p *Playground) parsePod(words []string) (*kubelet.Pod, error) {
	if len(words) < 2 {
		return nil, errUsage
	}
	pod := &kubelet.Pod{Name: words[0]}
	if len(validation.IsDNS1123Subdomain(pod.Name)) > 0 {
		return nil, fmt.Errorf("name %q of a pod: want lower-case letters, digits, dots and hyphens", pod.Name)
	}
	for _, word := range words[1:] {
		if word == required {
			pod.Annotations = map[string]string{intent.AlignmentKey: string(intent.Required)}
			continue
		}
		request, err := p.parseRequest(word)
		if err != nil {
			return nil, err
		}
		for _, other := range pod.Requests {
			if other.Resource == request.Resource {
				return nil, fmt.Errorf("request %q: the pod requests %s twice", word, request.Resource)
			}
		}
		pod.Requests = append(pod.Requests, request)
	}
	if len(pod.Requests) == 0 {
		return nil, fmt.Errorf("pod %s requests nothing: want gpu=NUMBER, vf=NUMBER or both", pod.Name)
	}
	return pod, nil
}

// parseRequest reads "gpu=2" or "vf=2".
func (p *Playground) parseRequest(word string) (kubelet.Request, error) {
	name, number, _ := strings.Cut(word, "=")
	resource, known := map[string]string{"gpu": p.gpus.Resource, "vf": VF}[name]
	count, err := strconv.ParseUint(number, 10, 16)
	if !known || err != nil || count == 0 {
		return kubelet.Request{}, fmt.Errorf("request %q: want gpu=NUMBER, vf=NUMBER or %s", word, required)
	}
	return kubelet.Request{Resource: resource, Count: int(count)}, nil
}

// run admits a pod and shows its devices.
func (p *Playground) run(ctx context.Context, words []string) (string, error) {
	pod, err := p.parsePod(words)
	if err != nil {
		return "", MistakeError{err}
	}
	before := p.answersAlone()
	if err := p.kubelet.Admit(ctx, pod); err != nil {
		return "", fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	text, err := p.examine(ctx, pod.Name)
	var far *farError
	if errors.As(err, &far) {
		text, err = text+"note: "+far.Error()+"\n", nil
	}
	if err == nil && p.answersAlone() > before {
		text += "note: the coordinator did not answer in time, as on a busy machine; a plugin has answered alone\n"
	}
	return text, err
}

// answersAlone returns the number of the plugins' answers without the coordinator.
func (p *Playground) answersAlone() int { return p.gpu.answersAlone() + p.rdma.answersAlone() }

// delete ends a pod.
func (p *Playground) delete(_ context.Context, words []string) (string, error) {
	if len(words) != 1 {
		return "", errUsage
	}
	if err := p.kubelet.Delete(words[0]); err != nil {
		return "", err
	}
	return "", os.RemoveAll(p.podDir(words[0]))
}

// list lists the pods with their devices.
func (p *Playground) list(_ context.Context, words []string) (string, error) {
	if len(words) != 0 {
		return "", errUsage
	}
	var rows cli.Text
	rows.Row("POD", "GPUS", "VFS")
	for _, name := range p.kubelet.Pods() {
		grant, _ := p.kubelet.Grant(name) // no other goroutine deletes pods
		rows.Row(name, len(grant.Devices[p.gpus.Resource]), len(grant.Devices[VF]))
	}
	return rows.String(), nil
}

// env shows the environment variables, device nodes and mounts of a pod's container.
func (p *Playground) env(_ context.Context, words []string) (string, error) {
	if len(words) != 1 {
		return "", errUsage
	}
	grant, known := p.kubelet.Grant(words[0])
	if !known {
		return "", fmt.Errorf("pod %q: %w", words[0], kubelet.ErrNoPod)
	}
	lines := slices.Concat(grant.Environment, grant.Nodes)
	for _, inside := range grant.MountPaths() {
		lines = append(lines, inside+" is "+grant.Mounts[inside])
	}
	return strings.Join(lines, "\n") + "\n", nil
}

// verify verifies the devices of a pod as tandem verify does in the pod.
func (p *Playground) verify(ctx context.Context, words []string) (string, error) {
	if len(words) != 1 {
		return "", errUsage
	}
	return p.examine(ctx, words[0])
}

// farError is the failure of a verification.
type farError struct{ failures []string }

func (e *farError) Error() string { return strings.Join(e.failures, "; ") }

// halves shows the devices of a container without pairs.
func (p *Playground) halves(grant kubelet.Grant) string {
	var text strings.Builder
	for _, half := range []struct{ name, resource string }{{"GPU", p.gpus.Resource}, {"VF", VF}} {
		for _, id := range grant.Devices[half.resource] {
			fmt.Fprintln(&text, half.name, id)
		}
	}
	return text.String()
}

// examine gives a pod's container its device nodes, and verifies the devices. The error is a farError if a
// pair is not near.
func (p *Playground) examine(ctx context.Context, name string) (string, error) {
	grant, known := p.kubelet.Grant(name)
	if !known {
		return "", fmt.Errorf("pod %q: %w", name, kubelet.ErrNoPod)
	}
	gpus, vfs := len(grant.Devices[p.gpus.Resource]), len(grant.Devices[VF])
	if gpus == 0 || vfs == 0 {
		return p.halves(grant), nil
	}
	dev := p.podDir(name)
	if err := makeFiles(dev, inDev(grant.Nodes)); err != nil {
		return "", fmt.Errorf("make the device nodes of pod %s: %w", name, err)
	}
	check := verify.Check{
		Environment: grant.Environment, SysfsRoot: p.SysfsRoot(), DevRoot: dev, ProcRoot: p.proc(),
		GPUs: gpus, VFs: vfs, PairsFile: grant.Mounts[pairs.Mount], Within: topology.C2C,
	}
	result, err := check.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("verify pod %s: %w", name, err)
	}
	if len(result.Failures) > 0 {
		return result.Table().String(), &farError{result.Failures}
	}
	return result.Table().String(), nil
}

// podDir returns the folder in place of a container's /dev.
func (p *Playground) podDir(name string) string { return p.path("pods", name) }
