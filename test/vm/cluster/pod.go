// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/vm/build"
)

// VFResource is the resource of the VFs in deployments/base.
const VFResource = "tandem.dev/rdma_vf"

// Pod is a pod to create.
type Pod struct {
	Name     string
	Asks     []Ask
	Networks string // of Multus, "" for none
	// scheduler of the pod, "" for the cluster's default
	Scheduler string
	Perftest  bool // containers have the node's perftest
}

// Ask is the request of one container.
type Ask struct {
	GPUs, VFs int
	Init      bool
	CPUs      int // whole ones, for a Guaranteed pod; 0 for a Burstable one
	Way       Way
}

// Way is how a container asks for GPUs and VFs.
type Way int

// Ways of requests, as in docs/dra.md. By pairs a container gets as many VFs as GPUs.
const (
	ByResources Way = iota // a resource for GPUs and one for VFs
	ByTemplate             // a claim from deployments/dra/claim-templates
	ByPair                 // the resource tandem.dev/pair
)

// pairResource is the extended resource of a device class.
const pairResource = "tandem.dev/pair"

func (a Ask) String() string { return fmt.Sprintf("%d+%d", a.GPUs, a.VFs) }

// Has reports whether b fits. Has, Plus and Minus consider devices only.
func (a Ask) Has(b Ask) bool { return a.GPUs >= b.GPUs && a.VFs >= b.VFs }

// Plus returns the sum.
func (a Ask) Plus(b Ask) Ask { return Ask{GPUs: a.GPUs + b.GPUs, VFs: a.VFs + b.VFs} }

// Minus returns the rest without b.
func (a Ask) Minus(b Ask) Ask { return Ask{GPUs: a.GPUs - b.GPUs, VFs: a.VFs - b.VFs} }

// look is a container's script: it prints the sysfs paths of its devices, of GPUs by device nodes (NVIDIA's
// by environment and driver), of VFs by environment, and the result of tandem verify. Each line begins with a
// keyword.
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

func (a Ask) container(name, gpuResource string) corev1.Container {
	then := "trap exit TERM; sleep 1000000 & wait" // a first process that only sleeps would have to be killed
	if a.Init {
		then = "exit 0"
	}
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
	counts := map[string]int{}
	var claims []corev1.ResourceClaim
	switch a.Way {
	case ByTemplate:
		claims = []corev1.ResourceClaim{{Name: name}}
	case ByPair:
		counts[pairResource] = a.GPUs
	case ByResources:
		counts[gpuResource], counts[VFResource] = a.GPUs, a.VFs
	}
	for name, count := range counts {
		if count > 0 {
			limits[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
	}
	if a.CPUs > 0 {
		limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(a.CPUs), resource.DecimalSI)
		limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
		requests = nil
	}
	return corev1.Container{
		Name: name, Image: build.Image, Command: []string{"sh", "-c", fmt.Sprintf(look, a.GPUs, a.VFs, then)},
		Resources: corev1.ResourceRequirements{Limits: limits, Requests: requests, Claims: claims},
	}
}

// perftest are the node's files that perftest takes: the programs, their loader, their libraries and the
// drivers of libibverbs.
var perftest = []string{
	"/usr/bin/ib_write_bw", "/usr/bin/ib_read_lat", "/lib64", "/lib/x86_64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu", "/etc/libibverbs.d",
}

// mount mounts files of the node at the same places in a container.
func mount(spec *corev1.PodSpec, container *corev1.Container, paths []string) {
	for i, path := range paths {
		name := fmt.Sprintf("%s-%d", container.Name, i)
		spec.Volumes = append(spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		})
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
}

func (p Pod) manifest(gpuResource string) *corev1.Pod {
	no, grace := false, int64(1)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: corev1.PodSpec{
			SchedulerName:                p.Scheduler,
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &grace,
		},
	}
	if p.Networks != "" {
		pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": p.Networks}
	}
	for i, a := range p.Asks {
		container := a.container(containerName(i), gpuResource)
		if a.Way == ByTemplate {
			template := fmt.Sprintf("tandem-pairs-%d", a.GPUs)
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
				corev1.PodResourceClaim{Name: container.Name, ResourceClaimTemplateName: &template})
		}
		if p.Perftest {
			mount(&pod.Spec, &container, perftest)
		}
		if a.Init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}
