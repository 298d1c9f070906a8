// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// Field adds an element to a field of a pod, the first with i 0. Elements of a field have the same size.
type Field func(p *corev1.Pod, i int)

// Text adds an environment variable of 32 KiB.
func Text(p *corev1.Pod, i int) {
	first := &p.Spec.Containers[0]
	first.Env = append(first.Env, corev1.EnvVar{Name: number("TEXT", i), Value: strings.Repeat("x", 32<<10)})
}

// Containers adds a container: only the size of a pod limits their number.
func Containers(p *corev1.Pod, i int) {
	p.Spec.Containers = append(p.Spec.Containers, container(number("c", i)))
}

// Roles adds an init container, a sidecar, an ephemeral container and a container, with names of 63 bytes.
func Roles(p *corev1.Pod, i int) {
	long := func(prefix string) corev1.Container { return container(number(prefix+strings.Repeat("x", 56), i)) }
	always := corev1.ContainerRestartPolicyAlways
	sidecar := long("s")
	sidecar.RestartPolicy = &always
	p.Spec.InitContainers = append(p.Spec.InitContainers, long("i"), sidecar)
	p.Spec.Containers = append(p.Spec.Containers, long("c"))
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon(long("e")),
	})
}

// notes are the annotations that Tandem reads.
var notes = []string{
	intent.AlignmentKey, intent.DevicesKey, "hami.io/vgpu-devices-allocated", "hami.io/amd-devices-allocated",
	"volcano.sh/vgpu-ids-new", "scheduling.koordinator.sh/device-allocated",
}

// Notes adds an annotation of 16 KiB, first those that Tandem reads, with no value that it knows.
func Notes(p *corev1.Pod, i int) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	key := number("example.com/"+strings.Repeat("n", 56), i)
	if i < len(notes) {
		key = notes[i]
	}
	p.Annotations[key] = strings.Repeat(`é"\`, 4<<10)
}

// Labels adds the longest label.
func Labels(p *corev1.Pod, i int) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	domain := strings.Repeat(strings.Repeat("d", 62)+".", 4)
	p.Labels[number(domain+"x/"+strings.Repeat("l", 56), i)] = strings.Repeat("v", 63)
}

// quantities are numbers of an extended resource: whole, and else any that can be written.
var quantities = []string{"9223372036854775807", "9E", "7Ei", "1Ki", "1e3", "1000000", "1k", "0"}

// Resources adds an extended resource to the limits of the first container, with the longest name.
func Resources(p *corev1.Pod, i int) {
	first := &p.Spec.Containers[0].Resources
	if first.Limits == nil {
		first.Limits, first.Requests = corev1.ResourceList{}, corev1.ResourceList{}
	}
	name := corev1.ResourceName(number("example.com/"+strings.Repeat("r", 56), i))
	first.Limits[name] = resource.MustParse(quantities[i%len(quantities)])
	first.Requests[name] = first.Limits[name]
}

// Volumes adds a volume, with a mount.
func Volumes(p *corev1.Pod, i int) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: number("v", i)})
	first := &p.Spec.Containers[0]
	first.VolumeMounts = append(first.VolumeMounts, corev1.VolumeMount{
		Name: number("v", i), MountPath: number("/v", i),
	})
}

// mappings is the number of requests of a claim (DeviceRequestsMaxSize in k8s.io/api/resource/v1/types.go).
const mappings = 32

// Claims adds a claim for the first container, and a container whose extended resource a claim backs.
func Claims(p *corev1.Pod, i int) {
	name := number("claim", i)
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{
		Name: name, ResourceClaimTemplateName: &name,
	})
	first := &p.Spec.Containers[0].Resources
	first.Claims = append(first.Claims, corev1.ResourceClaim{Name: name})
	backed := container(number("backed", i))
	backed.Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	p.Spec.Containers = append(p.Spec.Containers, backed)
	if p.Status.ExtendedResourceClaimStatus == nil {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claims"}
	}
	if status := p.Status.ExtendedResourceClaimStatus; i < mappings {
		status.RequestMappings = append(status.RequestMappings, corev1.ContainerExtendedResourceRequest{
			ContainerName: backed.Name, ResourceName: "example.com/gpu", RequestName: number("request", i),
		})
	}
}

// Devices returns a field of containers that want a number of each resource.
func Devices(quantity string, resources ...corev1.ResourceName) Field {
	return func(p *corev1.Pod, i int) {
		c := container(number("d", i))
		c.Resources.Limits = corev1.ResourceList{}
		for _, name := range resources {
			c.Resources.Limits[name] = resource.MustParse(quantity)
		}
		c.Resources.Requests = c.Resources.Limits
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}

// Classes adds a container with CPUs and memory as limits and requests, as requests alone, or with neither.
func Classes(p *corev1.Pod, i int) {
	c := container(number("c", i))
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi"),
	}
	switch i % 3 {
	case 0:
		c.Resources.Limits, c.Resources.Requests = list, list
	case 1:
		c.Resources.Requests = list
	}
	p.Spec.Containers = append(p.Spec.Containers, c)
}

// Anything sets all fields of a pod's specification to random values, the same for the same name and i.
func Anything(p *corev1.Pod, i int) {
	first, seed := p.Spec.Containers[0], int64(i)
	for _, c := range p.Name {
		seed = 31*seed + int64(c)
	}
	filler := randfill.NewWithSeed(seed).NilChance(.2).NumElements(1, 3).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(quantities[c.Intn(len(quantities))])
		},
		func(p *intstr.IntOrString, c randfill.Continue) { *p = intstr.FromInt32(c.Int31()) },
		func(*metav1.ManagedFieldsEntry, randfill.Continue) {}, // only valid JSON can be encoded
	)
	filler.Fill(&p.Spec)
	p.Spec.Containers = append(p.Spec.Containers, first)
}

// number returns a name with a number of six digits, so that the elements of a field have the same size.
func number(prefix string, i int) string { return fmt.Sprintf("%s%06d", prefix, i) }
