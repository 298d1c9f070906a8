// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/apiserver"
)

// namespace is the namespace of all pods.
const namespace = "team"

// pod is a pod of the node.
type pod struct {
	name      string
	uid       types.UID
	claims    []*claim
	apart     bool // each claim, or each set of extended resources, has a container of its own
	deleted   bool // the API server has no object any more
	ending    bool // the kubelet has to unprepare the claims
	forgotten bool // the kubelet does not know the pod any more
}

func (p *pod) String() string { return fmt.Sprintf("%s (%s)", p.name, p.uid) }

// claim is a claim of a pod, or of several.
type claim struct {
	name   string
	uid    types.UID
	shared bool
	// the scheduler made the claim of extended resources
	extended bool

	devices []string // allocated
	gpus    []string // of the devices
	vfs     int      // number of VFs
	ids     []string // GPUs and VFs of the devices, as published
	seen    []string // GPUs and VFs of its containers, by the CDI spec
	shares  []*share // in the order of the requests

	lost     bool     // the claim's object was deleted before its pod
	prepared bool     // the kubelet knows the answer
	answered []string // CDI devices of the last successful Prepare; nil for none
	released bool     // Unprepare was called
	freed    bool     // Unprepare was answered with success
	restored bool     // the files were checked since the last loss of the folders in memory
}

func (c *claim) String() string { return fmt.Sprintf("%s (%s) with %v", c.name, c.uid, c.devices) }

// share is what a request of a claim gives to its container.
type share struct {
	request string
	gpus    []string
	vfs     int
	cdi     []string // devices of the answer
}

// isGone reports whether the pod has ended and the API server has no object of it or of its claims. The
// kubelet may still have to unprepare the claims; the driver frees them without it, after some minutes.
func (p *pod) isGone() bool { return p.ending && p.deleted }

// holds reports whether the claim has to stay prepared.
func (c *claim) holds() bool { return c.answered != nil && !c.released }

// shape is a pod's claims, each with its requests.
type shape struct {
	claims   [][]want
	apart    bool // each claim has a container of its own
	extended bool // the scheduler made the claim of extended resources: GPUs and VFs of each container
}

var shapes = []shape{
	{claims: [][]want{{{pool.TypePair, 1}}}},
	{claims: [][]want{{{pool.TypePair, 2}}}},
	{claims: [][]want{{{pool.TypeGPU, 1}}}},
	{claims: [][]want{{{pool.TypeVF, 1}}}},
	{claims: [][]want{{{pool.TypeGPU, 1}, {pool.TypeVF, 1}}}},
	{claims: [][]want{{{pool.TypeGPU, 2}, {pool.TypeVF, 2}}}},
	{claims: [][]want{{{pool.TypePair, 1}}, {{pool.TypeVF, 1}}}},
	{claims: [][]want{{{pool.TypePair, 1}}, {{pool.TypePair, 1}}}, apart: true},
	{claims: [][]want{{{pool.TypePair, 1}, {pool.TypePair, 1}, {pool.TypeVF, 1}}}},
	{claims: [][]want{{{pool.TypeGPU, 2}, {pool.TypeVF, 2}}}, extended: true},
	{claims: [][]want{
		{{pool.TypeGPU, 1}, {pool.TypeVF, 1}, {pool.TypeGPU, 1}, {pool.TypeVF, 2}},
	}, extended: true},
}

// freeName returns a pod's name that the API server does not have: names are used again.
func (n *Node) freeName() string {
	for i := 0; ; i++ {
		name := fmt.Sprint("train-", i)
		if !slices.ContainsFunc(n.pods, func(p *pod) bool { return p.name == name && !p.deleted }) {
			return name
		}
	}
}

// arrive makes a pod whose claims are allocated; nil without enough devices.
func (n *Node) arrive(random *rand.Rand) *pod {
	n.made++
	p := &pod{name: n.freeName(), uid: types.UID(fmt.Sprint("pod-", n.made))}
	if c := n.shareable(random); c != nil {
		p.claims = []*claim{c}
		n.add(p)
		return p
	}
	of := shapes[random.IntN(len(shapes))]
	p.apart = of.apart
	shared := len(of.claims) == 1 && !of.extended && random.IntN(4) == 0
	offered := n.offer()
	if offered == nil {
		return nil
	}
	var made []apiserver.Object
	for i, wants := range of.claims {
		c := &claim{
			name: fmt.Sprint(p.name, "-claim-", i), uid: types.UID(fmt.Sprint("claim-", n.made, "-", i)),
			shared: shared, extended: of.extended,
		}
		if shared {
			c.name = fmt.Sprint("shared-", n.made)
		}
		o := c.allocate(offered, wants, random.IntN(6) == 0)
		if o == nil {
			return nil
		}
		if !shared {
			o.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: p.name, UID: p.uid}}
		}
		p.claims, made = append(p.claims, c), append(made, o)
	}
	n.server.Put(made...)
	n.add(p)
	return p
}

// shareable returns a shared claim of a running pod, by chance; nil for none.
func (n *Node) shareable(random *rand.Rand) *claim {
	if random.IntN(4) > 0 {
		return nil
	}
	for _, p := range n.pods {
		if c := p.claims[0]; c.shared && c.holds() && c.prepared && !c.lost && !p.ending && !p.deleted {
			return c
		}
	}
	return nil
}

// allocate returns the claim's object with devices, nil without enough devices.
func (c *claim) allocate(from *offer, wants []want, others bool) *resourceapi.ResourceClaim {
	o := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.name, UID: c.uid},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	add := func(request, driver, device string) {
		results := &o.Status.Allocation.Devices.Results
		*results = append(*results, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: driver, Pool: nodeName, Device: device,
		})
	}
	for i, w := range wants {
		request := c.requestName(i)
		s := &share{request: request}
		c.shares = append(c.shares, s)
		o.Spec.Devices.Requests = append(o.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: request, Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: string(w.of) + "." + pool.Driver, Count: int64(w.count),
			},
		})
		found, ok := from.allocate(w)
		if !ok {
			return nil
		}
		for _, device := range found {
			add(request, pool.Driver, device.Name)
			c.devices = append(c.devices, device.Name)
			c.ids = append(c.ids, attribute(device, pool.AttributeGPU), attribute(device, pool.AttributeVF))
			if w.of != pool.TypeVF {
				s.gpus = append(s.gpus, attribute(device, pool.AttributeGPU))
			}
			if w.of != pool.TypeGPU {
				s.vfs++
			}
		}
	}
	for _, s := range c.shares {
		c.gpus, c.vfs = append(c.gpus, s.gpus...), c.vfs+s.vfs
	}
	if c.extended {
		o.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	}
	if others {
		add("other", otherDriver, "device-0")
		o.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: otherDriver, Pool: nodeName, Device: "device-0",
		}}
	}
	return o
}

// add adds a pod to the API server and the kubelet.
func (n *Node) add(p *pod) {
	n.pods = append(n.pods, p)
	n.server.Put(p.describe())
	n.reserve(p)
}

// reserve reserves the pod's claims for the pod.
func (n *Node) reserve(p *pod) {
	for _, c := range p.claims {
		apiserver.Change(n.server, namespace, c.name, func(o *resourceapi.ResourceClaim) {
			o.Status.ReservedFor = append(o.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
				Resource: "pods", Name: p.name, UID: p.uid,
			})
		})
	}
}

// requestName returns the name of a request by its number, as the scheduler names those of extended
// resources: two of each container.
func (c *claim) requestName(i int) string {
	if c.extended {
		return fmt.Sprintf("container-%d-request-%d", i/2, i%2)
	}
	return fmt.Sprint("r", i)
}

// parts returns the shares of each container of the pod.
func (p *pod) parts() (parts [][]*share) {
	parts = [][]*share{nil}
	for i, c := range p.claims {
		if i > 0 && p.apart {
			parts = append(parts, nil)
		}
		for j, s := range c.shares {
			if c.extended && j > 0 && j%2 == 0 {
				parts = append(parts, nil)
			}
			parts[len(parts)-1] = append(parts[len(parts)-1], s)
		}
	}
	return parts
}

// describeExtended adds the extended resources' claim to the pod's object: the status names the containers.
func (p *pod) describeExtended(o *corev1.Pod) {
	made := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: p.claims[0].name}
	o.Spec.Containers = nil
	for i, part := range p.parts() {
		container := corev1.Container{Name: fmt.Sprint("main-", i)}
		o.Spec.Containers = append(o.Spec.Containers, container)
		for _, s := range part {
			made.RequestMappings = append(made.RequestMappings, corev1.ContainerExtendedResourceRequest{
				ContainerName: container.Name, RequestName: s.request,
			})
		}
	}
	o.Status.ExtendedResourceClaimStatus = made
}

// describe returns the pod's object.
func (p *pod) describe() *corev1.Pod {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name, UID: p.uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	if p.claims[0].extended {
		p.describeExtended(o)
		return o
	}
	for i, c := range p.claims {
		name := fmt.Sprint("claim-", i)
		o.Spec.ResourceClaims = append(o.Spec.ResourceClaims, corev1.PodResourceClaim{
			Name: name, ResourceClaimName: &c.name,
		})
		if i > 0 && p.apart {
			o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: fmt.Sprint("side-", i)})
		}
		of := &o.Spec.Containers[len(o.Spec.Containers)-1]
		of.Resources.Claims = append(of.Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	return o
}

// remove removes a pod from the API server, and the claims that no other pod uses.
func (n *Node) remove(p *pod) {
	p.deleted = true
	if o := apiserver.Get[*corev1.Pod](n.server, namespace, p.name); o != nil && o.UID == p.uid {
		apiserver.Remove[*corev1.Pod](n.server, namespace, p.name)
	}
	for _, c := range p.claims {
		o := apiserver.Get[*resourceapi.ResourceClaim](n.server, namespace, c.name)
		switch {
		case o == nil || o.UID != c.uid:
		case n.isUsed(c, p):
			apiserver.Change(n.server, namespace, c.name, func(o *resourceapi.ResourceClaim) {
				o.Status.ReservedFor = slices.DeleteFunc(o.Status.ReservedFor,
					func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == p.uid })
			})
		default:
			apiserver.Remove[*resourceapi.ResourceClaim](n.server, namespace, c.name)
		}
	}
}

// isUsed reports whether another pod with an object uses a claim.
func (n *Node) isUsed(c *claim, by *pod) bool {
	return slices.ContainsFunc(n.pods, func(p *pod) bool {
		return p != by && !p.deleted && slices.Contains(p.claims, c)
	})
}
