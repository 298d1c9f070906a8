package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The VFs as deployments/base names them, and the image as it is imported into the guest.
const (
	vfResource = "tandem.dev/rdma_vf"
	image      = "registry.example/tandem:v1"
)

// ask is what one container wants.
type ask struct {
	gpus, vfs int
	init      bool
	cpus      int // whole ones, for a Guaranteed pod; 0 for a Burstable one
}

func (a ask) String() string { return fmt.Sprintf("%d+%d", a.gpus, a.vfs) }

// look is what a container does: it writes where sysfs has the devices that it was given, the GPUs as their device nodes
// show (NVIDIA's: as the environment lists them and the driver tells), the VFs as the environment lists them, and what
// tandem verify says of them. Lines begin with a word.
const look = `
for node in /dev/dri/renderD*; do
	[ -e $node ] && echo "gpu ${node##*/} $(readlink -f /sys/class/drm/${node##*/}/device)"
done
for uuid in $(IFS=,; echo $NVIDIA_VISIBLE_DEVICES); do
	for file in $(grep -l $uuid /proc/driver/nvidia/gpus/*/information); do
		gpu=${file%%/information}
		echo "gpu $uuid $(readlink -f /sys/bus/pci/devices/${gpu##*/})"
	done
done
for variable in $(env | grep '^PCIDEVICE_' | grep -v '_INFO='); do
	for vf in $(IFS=,; echo ${variable#*=}); do
		[ -e /sys/bus/pci/devices/$vf ] && echo "vf $vf $(readlink -f /sys/bus/pci/devices/$vf)"
	done
done
tandem verify --gpus %d --vfs %d 2>&1
echo "verify $?"
%s`

func (a ask) container(name, gpuResource string) corev1.Container {
	then := "trap exit TERM; sleep 1000000 & wait" // a first process that only sleeps has to be killed
	if a.init {
		then = "exit 0"
	}
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
	if a.gpus > 0 {
		limits[corev1.ResourceName(gpuResource)] = *resource.NewQuantity(int64(a.gpus), resource.DecimalSI)
	}
	if a.vfs > 0 {
		limits[vfResource] = *resource.NewQuantity(int64(a.vfs), resource.DecimalSI)
	}
	if a.cpus > 0 {
		limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(a.cpus), resource.DecimalSI)
		limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
		requests = nil
	}
	return corev1.Container{
		Name: name, Image: image, Command: []string{"sh", "-c", fmt.Sprintf(look, a.gpus, a.vfs, then)},
		Resources: corev1.ResourceRequirements{Limits: limits, Requests: requests},
	}
}

func newPod(name, gpuResource string, c scenario) *corev1.Pod {
	no, grace := false, int64(1)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &grace},
	}
	if c.networks != "" {
		pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": c.networks}
	}
	for i, a := range c.asks {
		container := a.container(fmt.Sprintf("c%d", i), gpuResource)
		if a.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}

// outcome is what became of a pod.
type outcome struct {
	reason     string // why it was refused, "" where it was admitted
	message    string
	containers []view // as the asks, in their order
	took       time.Duration
}

// create makes a pod and waits until all its containers have had their look, or it has failed.
func (n *node) create(ctx context.Context, name string, c scenario) (*outcome, error) {
	start := time.Now()
	if err := n.submit(ctx, name, c); err != nil {
		return nil, err
	}
	return n.see(ctx, name, c, start)
}

func (n *node) submit(ctx context.Context, name string, c scenario) error {
	manifest, err := json.Marshal(newPod(name, n.machine.resource, c))
	if err != nil {
		return err
	}
	_, err = n.kubectl(ctx, string(manifest), "create", "-f", "-")
	return err
}

// decided waits until the kubelet has admitted or refused a pod, and says which.
func (k *cluster) decided(ctx context.Context, name string) (admitted bool, err error) {
	pod, err := k.watchPod(ctx, name, func(p *corev1.Pod) bool { return p.Status.StartTime != nil })
	return err == nil && pod.Status.Phase != corev1.PodFailed, err
}

// see waits until all containers of a pod that was made then have had their look, or it has failed.
func (k *cluster) see(ctx context.Context, name string, c scenario, made time.Time) (*outcome, error) {
	pod, err := k.watchPod(ctx, name, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodFailed
	})
	if err != nil {
		return nil, err
	}
	o := &outcome{took: time.Since(made)}
	if pod.Status.Phase == corev1.PodFailed {
		o.reason, o.message = pod.Status.Reason, pod.Status.Message
		if o.reason == "" {
			return nil, fmt.Errorf("pod %s failed after it was admitted: %s", name, pod.Status.Message)
		}
		return o, nil
	}
	for i := range c.asks {
		seen, err := k.look(ctx, name, fmt.Sprintf("c%d", i))
		if err != nil {
			return nil, err
		}
		o.containers = append(o.containers, *seen)
	}
	return o, nil
}

// remove deletes pods and waits until they are gone.
func (k *cluster) remove(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := k.kubectl(ctx, "", append([]string{"delete", "pod", "--ignore-not-found", "--timeout=5m"}, names...)...)
	return err
}

// watchPod follows a pod until it is as wanted.
func (k *cluster) watchPod(ctx context.Context, name string, wanted func(*corev1.Pod) bool) (*corev1.Pod, error) {
	cmd := k.component("kubectl", "--kubeconfig="+k.path("run/admin"), "get", "pod", name, "--watch", "-o", "json")
	var found *corev1.Pod
	var last corev1.Pod
	err := follow(ctx, cmd, func(decoder *json.Decoder) (bool, error) {
		last = corev1.Pod{}
		if err := decoder.Decode(&last); err != nil {
			return false, err
		}
		if wanted(&last) {
			found = &last
		}
		return found != nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for pod %s, which is %s: %w", name, last.Status.Phase, err)
	}
	return found, nil
}

// follow reads a program's output until it is enough, and ends the program.
func follow(ctx context.Context, cmd *exec.Cmd, next func(*json.Decoder) (enough bool, err error)) error {
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	decoder := json.NewDecoder(output)
	enough := false
	for !enough && err == nil {
		enough, err = next(decoder)
	}
	end(cmd)
	return err
}

// end kills a program that has told enough.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // with the error that it was killed
}

// view is what a container saw.
type view struct {
	gpus, vfs []string // where they are: paths below /sys
	verified  bool
	verdict   string // the last line of tandem verify
}

// look reads a container's log until its last line.
func (k *cluster) look(ctx context.Context, pod, container string) (*view, error) {
	cmd := k.component("kubectl", "--kubeconfig="+k.path("run/admin"), "logs", "--follow", pod, "--container", container)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	defer end(cmd)
	v := &view{}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if v.read(lines.Text()) {
			return v, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("container %s of pod %s did not finish its look", container, pod), ctx.Err())
}

// read takes one line and reports whether it was the last.
func (v *view) read(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	_, path, _ := strings.Cut(rest, " ")
	switch word {
	case "gpu":
		v.gpus = append(v.gpus, path)
	case "vf":
		v.vfs = append(v.vfs, path)
	case "verify":
		v.verified = rest == "0"
		return true
	default:
		if line != "" {
			v.verdict = line
		}
	}
	return false
}

// pairs counts the pairs on one switch that the container's devices can make, by their paths alone. What Tandem says of
// distances is not asked.
func (v *view) pairs() int {
	gpus := map[string]int{}
	for _, path := range v.gpus {
		gpus[switchOf(path)]++
	}
	pairs := 0
	for _, path := range v.vfs {
		if s := switchOf(path); gpus[s] > 0 {
			gpus[s]--
			pairs++
		}
	}
	return pairs
}

// switchOf is the part of a device's path that is the way to its switch: host bridge, root port, upstream port.
func switchOf(path string) string {
	elements := strings.Split(path, "/") // "", sys, devices, pci0000:20, 0000:20:00.0, 0000:21:00.0, …
	return strings.Join(elements[:min(6, len(elements))], "/")
}
